"""What goes into the store and comes out of it: the four verbs' requests and answers.

Field names are those of the JSON on the wire. A line number is 1-based, an offset is
an absolute byte position in the file, a revision is the lower-case hex SHA-256 of the
whole file's bytes or `ABSENT`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from amux.hub.bindings import GLOBAL_BINDING, PRINCIPAL_PREFIX

ABSENT: Final = "absent"


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose documents a call works on: everyone's (`principal` is None) or one Principal's."""

    principal: str | None = None

    @property
    def binding(self) -> str:
        """Return the string that a launch freezes: `global` or `principal:<id>`."""
        return GLOBAL_BINDING if self.principal is None else PRINCIPAL_PREFIX + self.principal

    @property
    def folder(self) -> str:
        """Return the folder below `<AMUX_HOME>/memory/`; a caller never names it."""
        if self.principal is None:
            return "global"
        return "users/" + hashlib.sha256(self.principal.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """Ask for documents that hold any of the query's whitespace-separated literal terms."""

    query: str
    path_prefix: str = ""
    limit: int = 5
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One matching document: its best line, cut to a snippet."""

    path: str
    line: int
    snippet: str
    truncated: bool
    revision: str
    age_days: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """One page of matches, and how much of the scope was looked at."""

    matches: tuple[Match, ...]
    scanned_files: int
    skipped_files: int
    incomplete: bool
    truncated: bool
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetRequest:
    """Ask for a range of lines, or for what follows an offset (docs/memory-store.md)."""

    path: str
    start_line: int = 0
    end_line: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A piece of a document's text; `next_offset` continues it when `truncated`."""

    path: str
    exists: bool
    revision: str
    text: str = ""
    truncated: bool = False
    next_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertRequest:
    """Replace the whole document if its revision is the expected one, or create it (`absent`)."""

    path: str
    content: str
    expected_revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The document's revision after a write; `unchanged` when the bytes already stood there."""

    path: str
    revision: str
    unchanged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRequest:
    """Delete the document if its revision is the expected one."""

    path: str
    expected_revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The document is gone; `already_absent` when it was before the call."""

    path: str
    revision: str
    already_absent: bool
