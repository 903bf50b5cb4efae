"""Read an agent's own transcripts, with the rights of the account that they belong to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amux.launcher.session.store import TranscriptMark
from amux.materializer import reading, targetfiles

if TYPE_CHECKING:
    from amux.materializer.values import Identity

PART_BYTES: Final = 16 * 1024 * 1024
"""How much of a file is read at once; of a longer part the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a file stands, and the whole lines that it holds from `start`. Sizes in bytes.

    `truncated`: there were more of them, and these are the last.
    """

    path: str
    size: int
    digest: str
    start: int
    content: bytes
    truncated: bool

    def mark(self, beside: tuple[str, ...]) -> TranscriptMark:
        """Return what a record keeps of it."""
        return TranscriptMark(path=self.path, size=self.size, digest=self.digest, beside=beside)


def read(
    pattern: str, identity: Identity | None, *, since: int = 0, digest: str = ""
) -> Standing | None:
    """Return the newest matching file with its lines behind `since`; None where there is none.

    Where `digest` is not that of the file in front of `since`, the file was written anew and is
    read from its start. Raises NotProvided where the target's files cannot be asked for.
    """
    if identity is None:
        found = reading.appended(os.fsencode(pattern), since, digest.encode(), PART_BYTES)
    else:
        found = targetfiles.appended(identity, pattern, since, digest, limit=PART_BYTES)
    fields = (found or b"").split(b"\0", 4)
    if len(fields) != len(("path", "size", "start", "digest", "content")):
        return None
    path, size, start, tail, content = fields
    return Standing(
        path=os.fsdecode(path),
        size=int(size),
        digest=tail.decode("ascii", "replace"),
        start=int(start),
        content=content,
        truncated=int(start) not in {0, since},
    )


def newer(patterns: tuple[str, ...], identity: Identity | None, *, since: int) -> tuple[str, ...]:
    """Return the matching files that changed at `since` (nanoseconds of the clock) or later."""
    if not patterns:
        return ()
    if identity is None:
        found = tuple(
            path for one in patterns for path in reading.matching(os.fsencode(one), since)
        )
    else:
        found = targetfiles.newer(identity, patterns, since, limit=PART_BYTES)
    return tuple(dict.fromkeys(os.fsdecode(path) for path in found))
