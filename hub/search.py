"""Find literal terms in a scope's documents, within bounds of files, bytes and time.

Nothing is indexed: each search reads the files, so an offline edit is seen at once.
ASCII letters match in any case (`bytes.lower` folds only these and keeps offsets); all
other text matches as it is.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from amux.hub.documents import BOM, FILE_FLAGS, Document, is_inside_character, is_text, read_up_to
from amux.hub.errors import HubError, InvalidRequest, StorageFailed
from amux.hub.limits import refuse_over
from amux.hub.values import Match, SearchAnswer, SearchRequest
from amux.hub.walk import Kind, Step, Walk
from amux.hub.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amux.hub.limits import Limits

# Marks that end, open or quote a sentence in the scripts that we know of.
_PUNCTUATION: Final = (
    ".,;:!?'\"()[]{}<>"
    "\u2026\u201c\u201d\u2018\u2019\u201e\u201a\u00ab\u00bb\u2039\u203a\u00a1\u00bf"
    "\u3002\uff0c\u3001\uff1b\uff1a\uff01\uff1f\uff08\uff09\u300c\u300d\u300e\u300f"
    "\u300a\u300b\u3008\u3009\u3010\u3011\uff0e\uff61\uff64"
    "\u0964\u0965\u060c\u061b\u061f\u06d4\u0589\u05be\u1362\u104b"
)
_DAY_SECONDS: Final = 86400
_TITLE: Final = re.compile(rb"^# [^\n]*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Query:
    """The distinct terms of a query, as bytes with ASCII letters in lower case."""

    terms: tuple[bytes, ...]


def parse_query(request: SearchRequest) -> Query:
    """Return the query's terms; raises InvalidRequest."""
    try:
        request.query.encode()
        (request.cursor or "").encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest("the query or the cursor is not Unicode text") from error
    if request.limit < 0:
        raise InvalidRequest("limit is not negative")
    words = request.query.split()
    if not words:
        raise InvalidRequest("the query holds no term")
    bare = (word.strip(_PUNCTUATION) or word for word in words)
    return Query(tuple(dict.fromkeys(word.encode().lower() for word in bare)))


def check_query(request: SearchRequest, limits: Limits) -> None:
    """Hold the query against its limits; raises LimitExceeded."""
    size, words = len(request.query.encode()), len(request.query.split())
    refuse_over("query_bytes", limits.query_bytes, size, "the query has {} bytes")
    refuse_over("query_terms", limits.query_terms, words, "the query has {} words")
    refuse_over("search_results", limits.results_most, request.limit, "{} results were asked for")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A document that holds a term, and what its place in the order follows from."""

    path: str
    found: tuple[int, ...]
    """Indexes of the terms in its text or path."""
    headed: int
    """How many terms stand in its path or title."""


@dataclass(slots=True)
class Scan:
    """One pass over the files behind a walk, until it is done or a bound is met."""

    query: Query
    walk: Walk
    limits: Limits
    deadline: float
    monotonic: Callable[[], float]
    candidates: list[Candidate] = field(default_factory=list)
    holders: list[int] = field(default_factory=list)
    """For each term, how many of the scanned documents hold it."""
    scanned: int = 0
    skipped: int = 0
    read: int = 0
    incomplete: bool = False
    position: str = ""
    met_file: bool = False

    def run(self) -> None:
        """Scan; afterwards `incomplete` says whether files are left behind `position`."""
        self.holders = [0] * len(self.query.terms)
        for step in self.walk:
            # Never before the first step, so that each page brings the end nearer.
            if self.position and self._spent(step):
                self.incomplete = True
                break
            if step.kind is not Kind.PASSED:
                text = self._read(step) if step.kind is Kind.FILE else None
                if self.incomplete:
                    break
                if text is None:
                    self.skipped += 1
                else:
                    self._look(step.position, text)
            # A folder's end stands in for a path only on a page that met no file at all.
            if step.name or not self.met_file:
                self.position = step.position
            self.met_file |= bool(step.name)
        self.skipped += self.walk.misnamed

    def _spent(self, step: Step) -> bool:
        """Tell whether a bound is met; the end of a folder takes none of the files."""
        files = self.scanned + self.skipped + (step.kind is not Kind.PASSED)
        return (
            files > self.limits.search_files
            or self.walk.entries > self.limits.walk_entries
            or self.monotonic() >= self.deadline
        )

    def _read(self, step: Step) -> bytes | None:
        """Return a file's text, or None if it cannot be read as text.

        Sets `incomplete` instead when it would exceed the bytes of one search.
        """
        limits = self.limits
        try:
            file = os.open(step.name, FILE_FLAGS, dir_fd=step.folder)
            try:
                status = os.fstat(file)
                size = status.st_size
                if not stat.S_ISREG(status.st_mode) or size > limits.readable_bytes:
                    return None
                if self.position and self.read + size > limits.search_bytes:
                    self.incomplete = True
                    return None
                data = read_up_to(file, size, limits.readable_bytes)
            finally:
                os.close(file)
        except (OSError, HubError):
            return None
        self.read += len(data)
        return data.removeprefix(BOM) if is_text(data) else None

    def _look(self, path: str, text: bytes) -> None:
        """Look for the terms in one document's text and path."""
        self.scanned += 1
        low, low_path = text.lower(), path.encode().lower()
        terms = self.query.terms
        found = [index for index, term in enumerate(terms) if term in low or term in low_path]
        if not found:
            return
        head = low_path + b"\n" + title(low)
        headed = sum(terms[index] in head for index in found)
        self.candidates.append(Candidate(path, tuple(found), headed))
        for index in found:
            self.holders[index] += 1

    def ranked(self) -> list[Candidate]:
        """Return the candidates, best first."""
        weights = [1 / max(holders, 1) for holders in self.holders]

        def order(candidate: Candidate) -> tuple[int, int, float, str]:
            rarity = sum(weights[index] for index in candidate.found)
            return -len(candidate.found), -candidate.headed, -rarity, candidate.path

        return sorted(self.candidates, key=order)


def title(text: bytes) -> bytes:
    """Return a document's first `# ` heading, or nothing."""
    heading = _TITLE.search(text)
    return heading[0] if heading else b""


def answer(
    scan: Scan,
    limit: int,
    *,
    now: float,
    reread: Callable[[str], Document | None],
) -> SearchAnswer:
    """Return the page: the best candidates, read once more for line, snippet and revision.

    One that vanished since the scan is passed over; one that cannot be read any more counts as
    skipped, and the page as truncated. `reread` raises StorageFailed for that.
    """
    ranked = scan.ranked()
    matches: list[Match] = []
    gone = unread = 0
    for candidate in ranked:
        if len(matches) == limit:
            break
        try:
            document = reread(candidate.path)
        except StorageFailed:
            unread += 1
            continue
        if document is None:
            gone += 1
        else:
            matches.append(_match(candidate.path, document, scan, now))
    page = SearchAnswer(
        matches=tuple(matches),
        scanned_files=scan.scanned,
        skipped_files=scan.skipped + unread,
        incomplete=scan.incomplete,
        truncated=len(ranked) - gone > len(matches),
        cursor=scan.position if scan.incomplete else None,
    )
    while page.matches and len(encode(page)) > scan.limits.response_bytes:
        page = replace(page, matches=page.matches[:-1], truncated=True)
    return page


def _match(path: str, document: Document, scan: Scan, now: float) -> Match:
    text = document.data.removeprefix(BOM)
    number, line = best_line(text, scan.query.terms, lambda: scan.monotonic() >= scan.deadline)
    cut, whole = snippet(line, scan.query.terms, scan.limits.snippet_bytes)
    return Match(
        path=path,
        line=number,
        snippet=cut,
        truncated=not whole,
        revision=document.revision,
        age_days=max(0, int((now - document.modified) // _DAY_SECONDS)),
    )


def best_line(
    text: bytes, terms: Sequence[bytes], late: Callable[[], bool] = lambda: False
) -> tuple[int, bytes]:
    """Return the first line with most distinct terms, as its number and its bytes.

    Without a term in the text (one is in the path) that is line 1. When `late` says so,
    the best line seen so far is taken.
    """
    low = text.lower()
    present = [term for term in terms if term in low]
    best, best_count = 0, 0
    begin = 0
    turns = 0
    following = {term: low.find(term) for term in present}
    while following and best_count < len(present):
        begin = low.rfind(b"\n", 0, min(following.values())) + 1
        end = low.find(b"\n", begin)
        end = len(low) if end < 0 else end
        count = sum(at < end for at in following.values())
        if count > best_count:
            best, best_count = begin, count
        following = {
            term: at if at >= end else low.find(term, end) for term, at in following.items()
        }
        following = {term: at for term, at in following.items() if at >= 0}
        turns += 1
        if turns % 1024 == 0 and late():
            break
    end = text.find(b"\n", best)
    return text.count(b"\n", 0, best) + 1, text[best : len(text) if end < 0 else end]


def snippet(line: bytes, terms: Sequence[bytes], most: int) -> tuple[str, bool]:
    """Cut a line to at most `most` bytes around its first term; tell whether it is whole."""
    line = line.strip()
    if len(line) <= most:
        return line.decode(), True
    low = line.lower()
    places = [at for at in (low.find(term) for term in terms) if at >= 0]
    begin = max(0, min(min(places, default=0) - most // 4, len(line) - most))
    while is_inside_character(line, begin):
        begin += 1
    return line[begin : begin + most].decode(errors="ignore"), False
