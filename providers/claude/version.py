"""Which of Claude's releases can do what, and for which the guarantees were shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from providers.errors import UnknownVersion, UnsupportedVersion

Number = tuple[int, int, int]

OLDEST_BOUND: Final[Number] = (2, 1, 112)
"""The first whose `init` event names the memory folder; `get_settings` came a little earlier."""
SUBAGENT_APPEND: Final[Number] = (2, 1, 205)
SNAPSHOT: Final[Number] = (2, 1, 257)
SHOWN: Final[tuple[Number, Number]] = ((2, 1, 197), (2, 1, 332))


def read_version(output: str) -> str:
    """Return the version in what `claude --version` printed; raise UnknownVersion."""
    found = re.search(r"^\s*(\d+\.\d+\.\d+\S*) \(Claude Code\)", output, re.MULTILINE)
    if found is None:
        message = (
            f"`claude --version` printed {output.strip()[:200]!r}, which is not Claude Code's "
            "version; name the right program with --executable"
        )
        raise UnknownVersion(message)
    return found[1]


@dataclass(frozen=True, slots=True)
class Release:
    """One release, by number."""

    number: Number

    @classmethod
    def of(cls, version: str) -> Release:
        """Read `2.1.197`, with or without a suffix; raise UnknownVersion."""
        found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
        if found is None:
            message = f"{version!r} is not a version of Claude Code"
            raise UnknownVersion(message)
        return cls((int(found[1]), int(found[2]), int(found[3])))

    @property
    def subagent_append(self) -> bool:
        """Say whether text can be appended for sub-agents."""
        return self.number >= SUBAGENT_APPEND

    @property
    def snapshot(self) -> bool:
        """Say whether the release records the system prompt unless told not to."""
        return self.number >= SNAPSHOT

    def require_bound(self) -> None:
        """Raise UnsupportedVersion where a bound launch cannot keep its promises."""
        if self.number < OLDEST_BOUND:
            message = (
                f"Claude Code {_text(self.number)} is too old for memory: it tells too little of "
                f"its own; {_text(OLDEST_BOUND)} or newer is needed, or launch without memory"
            )
            raise UnsupportedVersion(message)

    def warnings(self) -> tuple[str, ...]:
        """Say which guarantees are unproven outside the releases that were tried."""
        oldest, newest = SHOWN
        if oldest <= self.number <= newest:
            return ()
        message = (
            f"Claude Code {_text(self.number)} is outside {_text(oldest)} to {_text(newest)}, for "
            "which the effect of the append, the settings and the resume was shown; native memory "
            "is still asked of the agent itself"
        )
        return (message,)


def _text(number: Number) -> str:
    return ".".join(map(str, number))
