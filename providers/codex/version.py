"""Which of Codex's releases can do what, and for which the guarantees were shown."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from amux.providers.errors import UnknownVersion, UnsupportedVersion
from amux.providers.release import SOURCE

Number: TypeAlias = tuple[int, int, int]

SHOWN: Final = ("0.153.4", "0.171.0")
"""Versions for which every guarantee was shown on the real agent."""

FIRST_WITH_MEMORY_MODE: Final[Number] = (0, 121, 0)
FIRST_WITH_SCREEN: Final[Number] = (0, 131, 0)
"""The first whose screen talks to a server on a Unix socket."""
HOLDS_ROLES: Final[Number] = (0, 149, 0)
"""Seen to keep native memory off in sub-agents whose role's file switches it on by its old name."""
LISTS_ONE_SERVER: Final[Number] = (0, 171, 0)
"""Seen to list the tools of one server; 0.153.4 starts every configured server for a list."""

_VERSION: Final = re.compile(r"\b(\d+)\.(\d+)\.(\d+)(-[0-9A-Za-z.]+)?\b")


def find(printed: str) -> str:
    """Return the version in what `codex --version` printed; raise UnknownVersion."""
    found = _VERSION.search(printed)
    if found is None:
        raise UnknownVersion(f"`codex --version` printed no version: {printed.strip()[:200]!r}")
    return found.group()


def said_by(user_agent: str) -> str:
    """Return the version in what `initialize` calls `userAgent` (`NAME/VERSION (…)`), or nothing.

    It is of the program that runs; what `--version` printed may be a wrapper's.
    """
    name, _, rest = user_agent.partition("/")
    found = _VERSION.match(rest) if name else None
    return "" if found is None else found.group()


def number(version: str) -> Number:
    """Return the three numbers of a version; raise UnknownVersion."""
    found = _VERSION.search(version)
    if found is None:
        raise UnknownVersion(f"{version!r} is no version of Codex")
    major, minor, patch = (int(part) for part in found.group(1, 2, 3))
    return (major, minor, patch) if major or minor or patch else SOURCE


def check(version: str) -> tuple[str, ...]:
    """Refuse a version without memory mode; warn for one whose guarantees were not shown."""
    if number(version) < FIRST_WITH_MEMORY_MODE:
        raise UnsupportedVersion(
            f"Codex {version} cannot switch native memory off for a thread; bound launches need "
            "0.121.0 or newer: install one, or launch without memory"
        )
    if version in SHOWN:
        return ()
    unproven = (
        f"Codex {version}: that native memory stays off in background work and sub-agents was "
        f"shown for {' and '.join(SHOWN)} only; run `amux probe codex` for this one"
    )
    return (unproven,)


def check_screen(version: str) -> None:
    """Refuse the screen of a version that cannot join a server on a socket of one user's own."""
    if number(version) < FIRST_WITH_SCREEN:
        raise UnsupportedVersion(
            f"the screen of Codex {version} cannot be joined to a server on a Unix socket, so no "
            "thread of it could be bound; with memory it needs 0.131.0 or newer: install one, use "
            "`codex exec`, or launch without memory"
        )
