"""Which of Codex's releases can do what, and for which the guarantees were shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amux.providers.errors import UnsupportedVersion
from amux.providers.release import VERSION, Support, leading_version, number

if TYPE_CHECKING:
    from amux.providers.release import Number

SHOWN: Final = ("0.153.4", "0.171.0")
"""Versions for which every guarantee was shown on the real agent."""

FIRST_WITH_MEMORY_MODE: Final[Number] = (0, 121, 0)
FIRST_WITH_SCREEN: Final[Number] = (0, 131, 0)
"""The first whose screen talks to a server on a Unix socket."""
HOLDS_ROLES: Final[Number] = (0, 149, 0)
"""Seen to keep native memory off in sub-agents whose role's file switches it on by its old name."""
LISTS_ONE_SERVER: Final[Number] = (0, 171, 0)
"""Seen to list the tools of one server; 0.153.4 starts every configured server for a list."""

SUPPORT: Final = Support(
    agent="Codex",
    command="codex",
    printed=rf"\b({VERSION})\b",
    oldest=FIRST_WITH_MEMORY_MODE,
    lacking="it cannot switch native memory off for a thread",
)


def from_user_agent(user_agent: str) -> str:
    """Return the version in what `initialize` calls `userAgent` (`NAME/VERSION (…)`), or nothing.

    It is of the program that runs; what `--version` printed may be a wrapper's.
    """
    name, _, rest = user_agent.partition("/")
    return leading_version(rest) if name else ""


def unproven_warnings(version: str) -> tuple[str, ...]:
    """Warn of a version for which the guarantees were not shown."""
    if version in SHOWN:
        return ()
    warning = (
        f"Codex {version}: that native memory stays off in background work and sub-agents was "
        f"shown for {' and '.join(SHOWN)} only; run `amux probe codex` for this one"
    )
    return (warning,)


def refuse_screen(version: str) -> None:
    """Refuse the screen of a version that cannot join a server on a socket of one user's own."""
    if number(version) < FIRST_WITH_SCREEN:
        raise UnsupportedVersion(
            f"the screen of Codex {version} cannot be joined to a server on a Unix socket, so no "
            "thread of it could be bound; with memory it needs 0.131.0 or newer: install one, use "
            "`codex exec`, or launch without memory"
        )
