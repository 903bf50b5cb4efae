"""The Hub's memory calls, as plain functions on JSON objects."""

from __future__ import annotations

import json

from amux.materializer.agentside.errors import Failure
from amux.materializer.agentside.transport import Exchange

TYPE_CHECKING = False
if TYPE_CHECKING:
    from amux.materializer.agentside.connection import Connection

OK = 200


def call(
    connection: Connection,
    verb: str,
    fields: dict[str, object],
    exchange: Exchange | None = None,
) -> dict[str, object]:
    """POST to `/v1/memory/<verb>` and return the answer's object, or raise the Hub's error."""
    try:
        body = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise Failure(
            "invalid_request", "The text holds half a character (a surrogate)."
        ) from error
    path = f"/v1/memory/{verb}"
    try:
        return _object(*(exchange or Exchange(connection)).send("POST", path, body))
    except Failure as failure:
        fresh = connection.renewed() if failure.code == "unauthenticated" else None
        if fresh is None:
            raise
    return _object(*Exchange(fresh).send("POST", path, body))


def require_capability(connection: Connection, exchange: Exchange | None = None) -> None:
    """Return if this caller could read memory now; else raise what a data call would."""
    exchange = exchange or Exchange(connection)
    answer = _object(*exchange.send("GET", "/v1/memory/capability"))
    # The Hub answers this call also while memory is off.
    if answer.get("enabled") is not True:
        raise Failure("memory_disabled", "Memory is switched off in the Hub.")


def _object(status: int, body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Failure("internal", f"The Hub answered {status} with something that is not JSON.")
    if status == OK:
        return found
    error = found.get("error")
    if not isinstance(error, dict):
        raise Failure("internal", f"The Hub answered {status} without an error that amux knows.")
    further = {str(k): v for k, v in error.items() if k not in ("code", "message")}
    raise Failure(str(error.get("code")), str(error.get("message")), **further)
