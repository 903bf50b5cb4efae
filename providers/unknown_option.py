"""An agent that ended because it does not know an option: amux's own, or the caller's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from amux.providers.errors import UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Collection

_SAID: Final = re.compile(r"unknown option:? '?(--?[A-Za-z][\w-]*)", re.IGNORECASE)


def find(said: str, arguments: tuple[str, ...]) -> str:
    """Return amux's own option that `said` calls unknown; empty for none, or the caller's."""
    found = _SAID.search(said)
    if found is None or any(word.partition("=")[0] == found[1] for word in arguments):
        return ""
    return found[1]


def refuse_version(agent: str, unknown: Collection[str]) -> None:
    """Raise UnsupportedVersion for an agent that was seen not to know an option that it needs."""
    if unknown:
        raise UnsupportedVersion(
            f"{agent} does not know {', '.join(sorted(unknown))}, which amux passes to it; "
            "install another version of it, or name one with --executable"
        )
