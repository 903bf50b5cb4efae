"""What a tool call does: arguments checked against the tool's schema, the Hub asked, a page made.

An answer is the Hub's own JSON as text. Where it fits the page twice, it also goes as
structured content, for clients that read only that; a long one goes once, as text.
"""

from __future__ import annotations

import threading

from amux.materializer.agentside.connection import find_connection
from amux.materializer.agentside.dialects import UNSTRUCTURED
from amux.materializer.agentside.errors import Failure
from amux.materializer.agentside.frames import INVALID_PARAMS, RpcError
from amux.materializer.agentside.hub import call, require_capability
from amux.materializer.agentside.pages import Pages, fits
from amux.materializer.agentside.streams import to_json
from amux.materializer.agentside.tools import CONTINUE, TOOLS, VERBS
from amux.materializer.agentside.transport import Exchange

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DIGITS = 16  # of a number that a model wrote as text; none that is meant is longer


class Ticket:
    """One running call, which may be cancelled from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exchange: Exchange | None = None
        self.cancelled = False

    def hold(self, exchange: Exchange) -> None:
        """Remember the exchange that a cancellation would end."""
        with self._lock:
            self._exchange = exchange
            if self.cancelled:
                exchange.abandon()

    def cancel(self) -> None:
        """End the call: its answer is not sent."""
        with self._lock:
            self.cancelled = True
            if self._exchange is not None:
                self._exchange.abandon()


class Toolbox:
    """The five tools of one server process."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._pages = Pages()
        self._schemas = {tool["name"]: tool["inputSchema"] for tool in TOOLS}

    def call(self, params: object, version: str, ticket: Ticket) -> dict[str, object]:
        """Return the result of `tools/call`; raise `RpcError` where there is no such tool."""
        name = params.get("name") if isinstance(params, dict) else None
        if not isinstance(params, dict) or not isinstance(name, str):
            raise RpcError(INVALID_PARAMS, "tools/call needs the name of a tool.")
        if name not in self._schemas:
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
        try:
            arguments = _checked(self._schemas[name], params.get("arguments"))
            return self._answer(name, arguments, version, ticket)
        except Failure as failure:
            return _result(to_json(failure.body()).decode(), error=True)

    def _answer(
        self, name: str, arguments: dict[str, object], version: str, ticket: Ticket
    ) -> dict[str, object]:
        connection = find_connection(self._environ)
        exchange = Exchange(connection)
        ticket.hold(exchange)
        if name == CONTINUE["name"]:
            # What was granted when the first page was made may have been taken back since.
            require_capability(connection, exchange)
            return {"content": self._pages.following(arguments["token"]), "isError": False}
        answer = call(connection, VERBS[name], arguments, exchange)
        text = to_json(answer).decode()
        if version not in UNSTRUCTURED:
            content: list[dict[str, object]] = [{"type": "text", "text": text}]
            if fits(content, answer):
                return {"content": content, "structuredContent": answer, "isError": False}
        return {"content": self._pages.first(text), "isError": False}


def _result(text: str, *, error: bool) -> dict[str, object]:
    return {"content": [{"type": "text", "text": text}], "isError": error}


def _checked(schema: object, given: object) -> dict[str, object]:
    """Return the arguments without the nulls that some models send for what they leave out."""
    fields = schema if isinstance(schema, dict) else {}
    properties = fields.get("properties")
    given = {} if given is None else given
    if not isinstance(given, dict) or not isinstance(properties, dict):
        raise RpcError(INVALID_PARAMS, "The arguments of a tool are an object.")
    _require_names(given, fields.get("required") or (), known=properties)
    found = {name: value for name, value in given.items() if value is not None}
    return {name: _typed(name, properties[name], value) for name, value in found.items()}


def _require_names(
    given: dict[str, object], required: Iterable[str], *, known: dict[str, object]
) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise Failure(
            "invalid_request",
            f"Unknown argument {', '.join(unknown)}; known are {', '.join(known)}.",
        )
    missing = [name for name in required if given.get(name) is None]
    if missing:
        raise Failure("invalid_request", f"The argument {', '.join(missing)} is missing.")


def _typed(name: str, schema: object, value: object) -> object:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "string" and isinstance(value, str):
        return value
    whole = _whole_number(value) if kind == "integer" else None
    if whole is not None:
        return whole
    raise Failure(
        "invalid_request",
        f"The argument {name} is {'a whole number' if kind == 'integer' else 'a string'}.",
    )


def _whole_number(value: object) -> int | None:
    """Return a whole number, also one that a model wrote as text or as a fraction; else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < DIGITS:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None
