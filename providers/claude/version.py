"""Which of Claude's releases can do what, and for which the guarantees were shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amux.providers.release import VERSION, TriedRange, number

if TYPE_CHECKING:
    from amux.providers.release import Number

SUBAGENT_APPEND: Final = (2, 1, 205)
SNAPSHOT: Final = (2, 1, 257)
SUPPORT: Final = TriedRange(
    agent="Claude Code",
    command="claude",
    printed=rf"^\s*({VERSION}) \(Claude Code\)",
    # The first whose `init` event names the memory folder; `get_settings` came a little earlier.
    oldest=(2, 1, 112),
    lacking="it tells too little of its own",
    first=(2, 1, 197),
    last=(2, 1, 332),
    shown="the effect of the append, the settings and the resume was shown; native memory is "
    "still asked of the agent itself",
)


@dataclass(frozen=True, slots=True)
class Release:
    """One release, by number."""

    number: Number

    @classmethod
    def of(cls, version: str) -> Release:
        """Read `2.1.197`, with or without a suffix; raise UnknownVersion."""
        return cls(number(version))

    @property
    def subagent_append(self) -> bool:
        """Say whether text can be appended for sub-agents."""
        return self.number >= SUBAGENT_APPEND

    @property
    def snapshot(self) -> bool:
        """Say whether the release records the system prompt unless told not to."""
        return self.number >= SNAPSHOT
