"""Refuse a caller's value of another kind than the call takes, before it goes anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amux.kinds import wrong_kind, wrong_seconds, wrong_texts
from amux.launcher.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST: Final = 1e9
"""Seconds, some thirty years: the system's own waits overflow beyond."""


def expect(name: str, value: object, *kinds: type[object], example: str = "") -> None:
    """Raise BadRequest for a value that is of none of these kinds."""
    _refuse(wrong_kind(name, value, kinds, example))


def expect_texts(name: str, value: Mapping[str, str]) -> None:
    """Raise BadRequest for what is not a mapping from texts to texts."""
    _refuse(wrong_texts(name, value))


def expect_call(name: str, value: object) -> None:
    """Raise BadRequest for what cannot be called."""
    if not callable(value):
        _refuse(f"{name} must be something to call, not {type(value).__name__}")


def seconds(name: str, value: float) -> float:
    """Return a number of seconds that can be waited for; raise BadRequest for what is none."""
    _refuse(wrong_seconds(name, value))
    return min(value, LONGEST)


def _refuse(sentence: str | None) -> None:
    if sentence is not None:
        raise BadRequest(sentence)
