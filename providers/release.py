"""Version numbers of agents, and what a launch with memory asks of one.

Every version that amux reads is read here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from amux.providers.errors import UnknownVersion, UnsupportedVersion

Number: TypeAlias = "tuple[int, int, int]"
SOURCE: Final = (2**31, 0, 0)
"""What 0.0.0 counts as, which a build from source prints: newer than any release."""
VERSION: Final = r"\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?"
"""A version, with or without a suffix, as a pattern."""
_ANY: Final = re.compile(r"(?<![\d.])\d+(?:\.\d+)+(?:[-+][0-9A-Za-z.+-]+)?")


def version_in(text: str) -> str:
    """Return the first dotted number in a text, with its suffix; empty where there is none."""
    found = _ANY.search(text)
    return found.group() if found else ""


def leading_version(text: str) -> str:
    """Return the version that a text begins with; empty where it begins with another word."""
    found = re.match(VERSION, text)
    return found.group() if found else ""


def is_plain(name: str) -> bool:
    """Say whether this is three numbers and nothing else."""
    return re.fullmatch(r"\d+\.\d+\.\d+", name) is not None


def number(version: str) -> Number:
    """Return the three numbers that a version begins with; raise UnknownVersion."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None:
        raise UnknownVersion(f"{version!r} is not a version, which begins with three numbers")
    numbers = (int(found[1]), int(found[2]), int(found[3]))
    return numbers if any(numbers) else SOURCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """What a launch with memory needs of an agent's releases.

    `printed` is what `<command> --version` prints, as a pattern with the version in its first
    group. `lacking` says, in a sentence that goes on from "it is too old", what releases before
    `oldest` lack.
    """

    agent: str
    command: str
    printed: str
    oldest: Number
    lacking: str

    def read(self, output: str) -> str:
        """Return the version in what `--version` printed; raise UnknownVersion."""
        found = re.search(self.printed, output, re.MULTILINE)
        if found is None:
            message = (
                f"`{self.command} --version` printed {output.strip()[:200]!r}, which is not "
                f"{self.agent}'s version; name the right program with --executable"
            )
            raise UnknownVersion(message)
        return found[1]

    def require(self, version: str) -> None:
        """Raise UnsupportedVersion where a launch with memory cannot keep its promises."""
        found = number(version)
        if found < self.oldest:
            message = (
                f"{self.agent} {_text(found)} is too old for memory: {self.lacking}; "
                f"{_text(self.oldest)} or newer is needed, or launch without memory"
            )
            raise UnsupportedVersion(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRange(Support):
    """The releases from `first` to `last` were tried; `shown` says what was shown for them."""

    first: Number
    last: Number
    shown: str

    def warnings(self, version: str) -> tuple[str, ...]:
        """Say which guarantees are unproven outside the releases that were tried."""
        found = number(version)
        if self.first <= found <= self.last:
            return ()
        message = (
            f"{self.agent} {_text(found)} is outside {_text(self.first)} to {_text(self.last)}, "
            f"for which {self.shown}"
        )
        return (message,)


def _text(found: Number) -> str:
    return ".".join(map(str, found)) if found != SOURCE else "0.0.0 (built from source)"
