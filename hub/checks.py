"""What a write is held against before it touches a file."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from amux.hub.errors import Conflict, InvalidRequest, RejectedContent
from amux.hub.fragments import count_lines
from amux.hub.guard import Finding, findings
from amux.hub.limits import Limits, refuse_over
from amux.hub.paths import ENTRY

if TYPE_CHECKING:
    from amux.hub.values import UpsertRequest

BYTE_ORDER_MARK: Final = "byte-order-mark"
_REVISION: Final = re.compile(r"[0-9a-f]{64}|absent", re.ASCII)


def encode_content(content: str) -> bytes:
    """Return the content's bytes; raises InvalidRequest for half a surrogate pair."""
    try:
        return content.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest("the content is not Unicode text") from error


def check_revision(revision: str) -> None:
    """Refuse what no revision looks like; raises InvalidRequest."""
    if not _REVISION.fullmatch(revision):
        raise InvalidRequest("expected_revision is 64 lower-case hex digits, or absent")


def check_size(path: str, data: bytes, limits: Limits) -> None:
    """Hold a document against its own limits; raises LimitExceeded."""
    size, said = len(data), "the document has {} bytes"
    if path == ENTRY:
        refuse_over("entry_bytes", limits.entry_bytes, size, said)
        lines = count_lines(data)
        refuse_over("entry_lines", limits.entry_lines, lines, "the document has {} lines")
    else:
        refuse_over("document_bytes", limits.document_bytes, size, said)


def find_unwanted(request: UpsertRequest, size: int, limits: Limits) -> tuple[Finding, ...]:
    """Return what the guard finds in a write; line 0 is the path, which searches show."""
    if size > limits.document_bytes:
        return ()
    if request.content.startswith("\ufeff"):
        return (Finding(BYTE_ORDER_MARK, 1, "invisible"),)
    in_path = (replace(finding, line=0) for finding in findings(request.path))
    return (*in_path, *findings(request.content))


def conflict(revision: str) -> Conflict:
    """Return the error for a revision that has moved."""
    return Conflict(
        "the document changed; read it again, merge, and pass the revision observed",
        revision=revision,
    )


def rejected(finding: Finding) -> RejectedContent:
    """Return the error for what the guard found; it never holds the text."""
    where = f"line {finding.line}" if finding.line else "the path"
    return RejectedContent(
        f"{where} looks like what memory must not hold ({finding.rule}); leave that text out",
        rule=finding.rule,
        line=finding.line,
    )
