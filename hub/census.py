"""Count a scope's documents, so that its quotas hold.

Counted anew at each write that creates or grows a document: folders tell by their time
of change when a name comes or goes, but not when an editor saves in place.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amux.hub.errors import LimitExceeded
from amux.hub.limits import refuse_over
from amux.hub.walk import Kind, Walk

if TYPE_CHECKING:
    from amux.hub.filesystem import FileSystem
    from amux.hub.limits import Limits


@dataclass(frozen=True, slots=True)
class Census:
    """A scope's documents and their bytes; `overfull` names a bound that ended the count."""

    documents: int
    size: int
    overfull: tuple[str, int] | None = None


def count(top: int, *, files: FileSystem, limits: Limits) -> Census:
    """Count the documents below an open folder; a file too large to read is none."""
    walk = Walk(top, "", files, limits)
    documents = size = 0
    for step in walk:
        if walk.entries > limits.walk_entries:
            return Census(documents, size, ("walk_entries", limits.walk_entries))
        if step.kind is not Kind.FILE:
            continue
        try:
            found = os.stat(step.name, dir_fd=step.folder, follow_symlinks=False).st_size
        except OSError:
            continue
        if found <= limits.readable_bytes:
            documents += 1
            size += found
    overfull = ("folder_entries", limits.folder_entries) if walk.overfull else None
    return Census(documents, size, overfull)


def refuse_overflow(census: Census, *, old: int | None, new: int, limits: Limits) -> None:
    """Refuse a write that takes the scope over a quota; raises LimitExceeded.

    `old` and `new` are the document's sizes, `old` None when it is created. One that does
    not grow the scope always passes, also when offline edits have overfilled it.
    """
    if census.overfull is not None:
        limit, maximum = census.overfull
        raise LimitExceeded(
            "the scope's folders hold too many entries for its documents to be counted "
            f"(at most {maximum}); remove what does not belong there",
            limit=limit,
            maximum=maximum,
            size=maximum + 1,
        )
    if old is None:
        refuse_over(
            "scope_documents",
            limits.scope_documents,
            census.documents + 1,
            "the scope would hold {} documents",
        )
    size = census.size - (old or 0) + new
    refuse_over("scope_bytes", limits.scope_bytes, size, "the scope would hold {} bytes")
