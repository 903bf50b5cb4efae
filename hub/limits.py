"""Every number that bounds the memory store (docs/memory-store.md)."""

from __future__ import annotations

from dataclasses import dataclass

from amux.hub.errors import LimitExceeded


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of documents, scopes, searches and answers; sizes in bytes unless named."""

    entry_bytes: int = 2 * 1024
    """The scope's own `MEMORY.md`."""
    entry_lines: int = 64
    document_bytes: int = 64 * 1024
    """Any other document, when it is written through the Hub."""
    readable_bytes: int = 1024 * 1024
    """A file that was put there offline; a larger one is no document."""

    path_bytes: int = 1024
    segment_bytes: int = 255
    """The longest name that Linux file systems take (NAME_MAX)."""

    scope_documents: int = 1024
    scope_bytes: int = 16 * 1024 * 1024
    folder_entries: int = 8192
    """A folder with more entries is not listed at all."""
    walk_entries: int = 16384
    """Entries that one search or one count looks at before it stops."""

    query_bytes: int = 512
    query_terms: int = 16
    search_files: int = 1024
    search_bytes: int = 8 * 1024 * 1024
    search_seconds: float = 0.250
    results_default: int = 5
    results_most: int = 20
    snippet_bytes: int = 240

    response_bytes: int = 8 * 1024
    """One answer's JSON as sent."""


def refuse_over(limit: str, maximum: int, size: int, found: str) -> None:
    """Refuse a size over its limit; `found` says what was found, `{}` stands for the size.

    Raises LimitExceeded.
    """
    if size > maximum:
        raise LimitExceeded(
            f"{found.format(size)}; at most {maximum} are taken",
            limit=limit,
            maximum=maximum,
            size=size,
        )
