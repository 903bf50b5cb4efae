"""Releases of an agent by number, and what a launch with memory asks of one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from amux.providers.errors import UnknownVersion, UnsupportedVersion

Number: TypeAlias = "tuple[int, int, int]"
SOURCE: Final = (2**31, 0, 0)
"""What 0.0.0 counts as, which a build from source prints: newer than any release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """What is known of an agent's releases. `lacking` and `shown` complete a sentence each.

    `printed` is what `<command> --version` prints, the version in its first group. Bound launches
    need `oldest`; from `first` to `last` the guarantees were shown.
    """

    agent: str
    command: str
    printed: str
    oldest: Number
    lacking: str
    first: Number
    last: Number
    shown: str

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

    def number(self, version: str) -> Number:
        """Read `1.2.3`, with or without a suffix; raise UnknownVersion."""
        found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
        if found is None:
            message = f"{version!r} is not a version of {self.agent}"
            raise UnknownVersion(message)
        number = (int(found[1]), int(found[2]), int(found[3]))
        return number if any(number) else SOURCE

    def require(self, number: Number) -> None:
        """Raise UnsupportedVersion where a bound launch cannot keep its promises."""
        if number < self.oldest:
            message = (
                f"{self.agent} {_text(number)} is too old for memory: {self.lacking}; "
                f"{_text(self.oldest)} or newer is needed, or launch without memory"
            )
            raise UnsupportedVersion(message)

    def warnings(self, number: Number) -> tuple[str, ...]:
        """Say which guarantees are unproven outside the releases that were tried."""
        if self.first <= number <= self.last:
            return ()
        message = (
            f"{self.agent} {_text(number)} is outside {_text(self.first)} to {_text(self.last)}, "
            f"for which {self.shown}"
        )
        return (message,)


def _text(number: Number) -> str:
    return ".".join(map(str, number)) if number != SOURCE else "0.0.0 (built from source)"
