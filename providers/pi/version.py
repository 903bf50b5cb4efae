"""Which of Pi's releases can do what, and for which the guarantees were shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amux.providers.release import VERSION, TriedRange, number

if TYPE_CHECKING:
    from amux.providers.release import Number

SESSION_ID: Final = (0, 76, 0)
TRUST: Final = (0, 79, 0)
SUPPORT: Final = TriedRange(
    agent="Pi",
    command="pi",
    printed=rf"^\s*(?:pi\s+)?v?({VERSION})\s*$",
    oldest=(0, 60, 0),
    lacking="it was never tried with amux",
    first=(0, 74, 2),
    last=(1, 6, 0),
    shown="the effect of the appended text was shown; run `amux probe pi` for this one",
)


@dataclass(frozen=True, slots=True)
class Release:
    """One release, by number."""

    number: Number

    @classmethod
    def of(cls, version: str) -> Release:
        """Read `0.74.2`, with or without a suffix; raise UnknownVersion."""
        return cls(number(version))

    @property
    def names_session(self) -> bool:
        """Say whether the caller can choose a session's id."""
        return self.number >= SESSION_ID

    @property
    def asks_trust(self) -> bool:
        """Say whether a project's own files need a decision."""
        return self.number >= TRUST
