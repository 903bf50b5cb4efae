"""Cut a document to the lines or the offset asked for, within one answer's size."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from amux.hub.documents import BOM, Document, decode, is_inside_character, revision_of
from amux.hub.errors import InvalidRequest
from amux.hub.values import Fragment, GetRequest
from amux.hub.wire import encode

if TYPE_CHECKING:
    from amux.hub.limits import Limits


def check_range(request: GetRequest) -> None:
    """Refuse a range that says nothing or two things; raises InvalidRequest."""
    if min(request.start_line, request.end_line, request.offset) < 0:
        raise InvalidRequest("start_line, end_line and offset are not negative")
    if request.start_line and request.offset:
        raise InvalidRequest("give start_line or offset, not both")
    if 0 < request.end_line < request.start_line:
        raise InvalidRequest(
            f"end_line {request.end_line} stands before start_line {request.start_line}"
        )


def fragment(document: Document | None, request: GetRequest, limits: Limits) -> Fragment:
    """Return the piece of the document that was asked for, cut between code points.

    Raises InvalidRequest for an offset inside a code point, and Undecodable.
    """
    revision = revision_of(document)
    if document is None:
        return Fragment(path=request.path, exists=False, revision=revision)
    decode(document)
    data = document.data
    begin = request.offset or _line_start(data, request.start_line)
    if is_inside_character(data, begin):
        raise InvalidRequest(f"offset {begin} stands inside a character")
    if begin == 0 and data.startswith(BOM):
        begin = len(BOM)
    end = _line_start(data, request.end_line + 1) if request.end_line else len(data)
    text = data[begin:end]
    whole = Fragment(path=request.path, exists=True, revision=revision, text=_text(text))
    # JSON only makes text longer, so a longer text need not be tried.
    if len(text) <= limits.response_bytes and len(encode(whole)) <= limits.response_bytes:
        return whole
    return _cut(whole, text, begin, limits.response_bytes)


def _text(data: bytes) -> str:
    # Only a cut-off last character can be undecodable here, and it is left out.
    return data.decode(errors="ignore")


def _cut(whole: Fragment, data: bytes, begin: int, most: int) -> Fragment:
    """Return the longest beginning of `data` whose answer has at most `most` bytes."""

    def beginning(size: int) -> Fragment:
        text = _text(data[:size])
        next_offset = begin + len(text.encode())
        return dataclasses.replace(whole, text=text, truncated=True, next_offset=next_offset)

    fits, exceeds = 0, min(len(data), most) + 1
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        if len(encode(beginning(middle))) <= most:
            fits = middle
        else:
            exceeds = middle
    return beginning(fits)


def _line_start(data: bytes, line: int) -> int:
    """Return where a 1-based line begins; the end of the file if it has fewer."""
    if line <= 1:
        return 0
    # A line count has a size of the machine's; no file has more lines than bytes.
    line = min(line, len(data) + 2)
    pieces = data.split(b"\n", line - 1)
    return len(data) - len(pieces[-1]) if len(pieces) == line else len(data)


def count_lines(data: bytes) -> int:
    r"""Return the number of `\n`, plus one for an unterminated last line."""
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
