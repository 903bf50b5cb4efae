"""Which of Pi's releases can do what, and for which the guarantees were shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from providers.errors import UnknownVersion, UnsupportedVersion

Number = tuple[int, int, int]

OLDEST_BOUND: Final[Number] = (0, 60, 0)
SESSION_ID: Final[Number] = (0, 76, 0)
TRUST: Final[Number] = (0, 79, 0)
SHOWN: Final[tuple[Number, Number]] = ((0, 74, 2), (1, 6, 0))


def read_version(output: str) -> str:
    """Return the version in what `pi --version` printed; raise UnknownVersion."""
    found = re.search(r"^\s*(?:pi\s+)?v?(\d+\.\d+\.\d+\S*)\s*$", output, re.MULTILINE)
    if found is None:
        message = (
            f"`pi --version` printed {output.strip()[:200]!r}, which is not Pi's version; name "
            "the right program with --executable"
        )
        raise UnknownVersion(message)
    return found[1]


@dataclass(frozen=True, slots=True)
class Release:
    """One release, by number."""

    number: Number

    @classmethod
    def of(cls, version: str) -> Release:
        """Read `0.74.2`, with or without a suffix; raise UnknownVersion."""
        found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
        if found is None:
            message = f"{version!r} is not a version of Pi"
            raise UnknownVersion(message)
        return cls((int(found[1]), int(found[2]), int(found[3])))

    @property
    def names_session(self) -> bool:
        """Say whether the caller can choose a session's id."""
        return self.number >= SESSION_ID

    @property
    def asks_trust(self) -> bool:
        """Say whether a project's own files need a decision."""
        return self.number >= TRUST

    def require_bound(self) -> None:
        """Raise UnsupportedVersion where a bound launch cannot keep its promises."""
        if self.number < OLDEST_BOUND:
            message = (
                f"Pi {_text(self.number)} is too old for memory: it was never tried with amux; "
                f"{_text(OLDEST_BOUND)} or newer is needed, or launch without memory"
            )
            raise UnsupportedVersion(message)

    def warnings(self) -> tuple[str, ...]:
        """Say which guarantees are unproven outside the releases that were tried."""
        oldest, newest = SHOWN
        if oldest <= self.number <= newest:
            return ()
        message = (
            f"Pi {_text(self.number)} is outside {_text(oldest)} to {_text(newest)}, for which "
            "the effect of the appended text was shown; run `amux probe pi` for this one"
        )
        return (message,)


def _text(number: Number) -> str:
    return ".".join(map(str, number))
