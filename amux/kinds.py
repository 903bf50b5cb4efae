"""Say what is wrong with a value of another kind than amux takes, in one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

NUMBER: Final = (int, float)


def wrong_kind(
    name: str, value: object, kinds: tuple[type[object], ...], example: str = ""
) -> str | None:
    """Return the sentence for a value that is of none of these kinds, else None."""
    if isinstance(value, kinds):
        return None
    named = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
    such = f", such as {example}" if example else ""
    return f"{name} must be of type {named}{such}, not {type(value).__name__}"


def wrong_seconds(name: str, value: object) -> str | None:
    """Return the sentence for what is not a number of seconds, else None."""
    if isinstance(value, float) and math.isnan(value):
        return f"{name} must be a number of seconds, not NaN"
    return wrong_kind(name, value, NUMBER, "2.5")


def wrong_texts(name: str, value: object) -> str | None:
    """Return the sentence for what is not a mapping from texts to texts, else None."""
    if not isinstance(value, Mapping):
        return wrong_kind(name, value, (Mapping,))
    for one in (*value, *value.values()):
        if not isinstance(one, str):
            return f"{name} must map texts to texts, and holds {type(one).__name__}"
    return None
