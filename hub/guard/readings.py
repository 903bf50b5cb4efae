"""A text as it can be read in other ways: what hides a key from a search hides it from nobody.

Each reading knows the line of the text that a position in it stands for.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_ESCAPE: Final = re.compile(r"%([2-6][0-9A-Fa-f]|7[0-9A-Ea-e])")
# What may stand inside a word without being seen: a soft hyphen, and zero width characters.
_UNSEEN: Final = str.maketrans("", "", "\u00ad\u200b\u200c\u200d\u2060\ufeff")
_BEFORE: Final = " \t\r\"'`+\\|"
_AFTER: Final = " \t>\"'`|#*/"
_TOUCHES: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+/=.%")


@dataclass(frozen=True, slots=True)
class Reading:
    """A text to search, and where each of its lines begins; none: its line breaks count."""

    text: str
    starts: tuple[int, ...] = ()

    def line(self, at: int) -> int:
        """Return the 1-based line of the original."""
        if self.starts:
            return bisect_right(self.starts, at)
        return self.text.count("\n", 0, at) + 1


def readings(text: str) -> Iterator[Reading]:
    """Yield the readings that differ from the text itself."""
    if "%" in text:
        decoded = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text)
        if decoded != text:
            yield Reading(decoded)
    if not text.isascii():
        seen = text.translate(_UNSEEN)
        if seen != text:
            yield Reading(seen)
    if "\n" in text:
        joined = _joined(text)
        if joined is not None:
            yield joined


def _joined(text: str) -> Reading | None:
    """Join the lines between which a word may have been cut; None where there are none."""
    pieces: list[str] = []
    starts: list[int] = []
    size, cut = 0, False
    for line in text.split("\n"):
        # Beside a cut, what quotes, indents or continues a line is no part of the word.
        begin = line.lstrip(_AFTER)
        end = pieces[-1].rstrip(_BEFORE) if pieces else ""
        if begin and end and begin[0] in _TOUCHES and end[-1] in _TOUCHES:
            size -= len(pieces[-1]) - len(end)
            pieces[-1] = end
            piece, cut = begin, True
        else:
            piece = "\n" + line if pieces else line
        starts.append(size)
        pieces.append(piece)
        size += len(piece)
    return Reading("".join(pieces), tuple(starts)) if cut else None
