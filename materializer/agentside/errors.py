"""The one error of the agent side, and how a shell sees each of its codes.

    Failure     code, message and further JSON fields; printed as one JSON object

The codes are the Hub's own, plus those that can only arise on this side:

    no_connection    this launch names no connection, or one that cannot be read
    not_found        `export` of a document that does not exist
    internal         anything else
"""

from __future__ import annotations

DONE = 0
OTHER = 1
USAGE = 2
CONFLICT = 3
REFUSED = 4
UNREACHABLE = 5
LIMIT = 6
INTERRUPTED = 130

EXIT_STATUS = {
    "unauthenticated": REFUSED,
    "forbidden": REFUSED,
    "binding_mismatch": REFUSED,
    "memory_disabled": REFUSED,
    "no_connection": REFUSED,
    "invalid_request": USAGE,
    "invalid_path": LIMIT,
    "not_found": LIMIT,
    "limit_exceeded": LIMIT,
    "rejected_content": LIMIT,
    "undecodable": LIMIT,
    "conflict": CONFLICT,
    "unavailable": UNREACHABLE,
    "storage_failed": OTHER,
    "internal": OTHER,
}


class Failure(Exception):
    """Say why a call was not done: a stable `code`, one sentence, further JSON `fields`."""

    def __init__(self, code: str, message: str, **fields: object) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fields = fields

    @property
    def status(self) -> int:
        """Return the exit status of this code (docs/agent-side.md)."""
        return EXIT_STATUS.get(self.code, OTHER)

    def body(self) -> dict[str, object]:
        """Return the JSON object that is printed: `{"error": {"code", "message", …}}`."""
        return {"error": {"code": self.code, "message": self.message, **self.fields}}
