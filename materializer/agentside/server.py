"""The MCP server on standard input and output: frames in, frames out, nothing else.

The main thread reads and answers what costs nothing. Tool calls run in worker threads, so
that a slow one neither delays another nor keeps its own cancellation from being seen.
"""

from __future__ import annotations

import os
import threading

from amux.materializer.agentside.connection import find_connection
from amux.materializer.agentside.dialects import (
    BATCHED,
    HANDSHAKE,
    MODERN,
    discover,
    initialize,
    modern_version,
    shaped,
)
from amux.materializer.agentside.errors import DONE, OTHER, Failure
from amux.materializer.agentside.frames import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Batch,
    Output,
    RpcError,
    decode,
    lines,
)
from amux.materializer.agentside.hub import require_capability
from amux.materializer.agentside.options import FLAG, TEXT, parse
from amux.materializer.agentside.streams import (
    STDERR,
    STDIN,
    STDOUT,
    complain,
    to_json,
    write_all,
)
from amux.materializer.agentside.toolbox import Ticket, Toolbox
from amux.materializer.agentside.tools import LATEST, LISTS
from amux.materializer.agentside.workers import Workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOLD = frozenset(["initialize", "tools/list", "tools/call"])
"""What this run's launcher hears of."""
HELP = """\
usage: amux mcp [--tools LIST]

Serve the memory of this launch as MCP tools on standard input and output.

  --tools LIST   the list of tools that the session began with; without it the latest
"""


def serve(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Serve until standard input ends; returns the exit status."""
    options = parse(argv, {"--tools": TEXT, "--help": FLAG, "-h": FLAG})
    if options.flag("--help") or options.flag("-h"):
        write_all(STDOUT, HELP.encode())
        return DONE
    if options.words:
        raise Failure("invalid_request", "amux mcp takes no argument but --tools LIST.")
    name = options.text("--tools") or LATEST
    if name not in LISTS:
        known = ", ".join(LISTS)
        raise Failure("invalid_request", f"This amux knows these lists of tools: {known}.")
    out = Output(os.dup(STDOUT))
    os.dup2(STDERR, STDOUT)  # whatever else might print cannot break a frame
    threading.Thread(target=_check, args=(environ,), daemon=True).start()
    return Server(out, environ, LISTS[name]).run(STDIN)


def _check(environ: Mapping[str, str]) -> None:
    """Ask the Hub once whether memory can be used, and tell standard error if it cannot."""
    try:
        require_capability(find_connection(environ))
    except Failure as failure:
        complain(to_json(failure.body()) + b"\n")


class Server:
    """One client's session."""

    def __init__(
        self, out: Output, environ: Mapping[str, str], tools: list[dict[str, object]]
    ) -> None:
        self._out = out
        self._toolbox = Toolbox(environ)
        self._tools = tools
        self._workers = Workers()
        self._environ = environ
        self._client: object = None
        self._told: set[str] = set()
        self._version = HANDSHAKE[0]
        self._running: dict[object, Ticket] = {}

    def run(self, fd: int) -> int:
        """Read to the end of the input, finish what runs, and return the exit status."""
        for line in lines(fd):
            try:
                self._receive(decode(line))
            except RpcError as error:
                self._out.send(error.reply(None))
            if self._out.broken:
                return OTHER
        self._workers.finish()
        return OTHER if self._out.broken else DONE

    def _receive(self, message: object) -> None:
        if not isinstance(message, list):
            self._accept(message, self._out)
            return
        if self._version not in BATCHED or not message:
            raise RpcError(INVALID_REQUEST, "Batches are not part of this protocol version.")
        batch = Batch(self._out)
        for part in message:
            try:
                self._accept(part, batch)
            except RpcError as error:
                batch.expect()
                batch.send(error.reply(None))
        batch.drop()

    def _accept(self, message: object, out: Output) -> None:
        if not isinstance(message, dict):
            raise RpcError(INVALID_REQUEST, "A frame is an object.")
        method, params, ident = message.get("method"), message.get("params"), message.get("id")
        if not isinstance(method, str):
            if "result" in message or "error" in message:
                return  # a reply, though this server sends no requests
            raise RpcError(INVALID_REQUEST, "The frame has no method.")
        if "id" not in message:
            self._notified(method, params)
            return
        if isinstance(ident, bool) or not isinstance(ident, (str, int)):
            raise RpcError(INVALID_REQUEST, "A request's id is a string or a whole number.")
        out.expect()
        try:
            self._reply(ident, method, params, out)
        except RpcError as error:
            out.send(error.reply(ident))

    def _reply(self, ident: object, method: str, params: object, out: Output) -> None:
        # The handshake belongs to the older versions, whatever version the request names.
        named = None if method == "initialize" else modern_version(params)
        version = named or self._version
        if method == "tools/call":
            self._begin(ident, params, version, out)
            return
        result = self._answer(method, params, version)
        out.send({"jsonrpc": "2.0", "id": ident, "result": shaped(version, method, result)})
        self._tell(method, params, result)

    def _answer(self, method: str, params: object, version: str) -> dict[str, object]:
        if method == "tools/list":
            return {"tools": self._tools}
        if version in MODERN:
            if method == "server/discover":
                return discover()
        elif method == "initialize":
            self._version, result = initialize(params)
            return result
        elif method == "ping":
            return {}
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")

    def _tell(self, method: str, params: object, result: dict[str, object]) -> None:
        """Tell the launcher once of each kind of request; the agent never waits for it."""
        if method == "initialize" and isinstance(params, dict):
            self._client = params.get("clientInfo")
        if method not in TOLD or method in self._told:
            return
        self._told.add(method)

        def work() -> None:
            # Imported here: the agent has its answer, and compiling it takes a moment.
            from amux.materializer.agentside.witness import tell  # noqa: PLC0415

            tell(self._environ, self._client, method, params, result)

        self._workers.add(work)

    def _notified(self, method: str, params: object) -> None:
        if method != "notifications/cancelled" or not isinstance(params, dict):
            return
        ident = params.get("requestId")
        ticket = self._running.get(ident) if isinstance(ident, (str, int)) else None
        if ticket is not None:
            ticket.cancel()

    def _begin(self, ident: object, params: object, version: str, out: Output) -> None:
        if ident in self._running:
            raise RpcError(INVALID_REQUEST, "A running request has this id already.")
        ticket = self._running[ident] = Ticket()

        def work() -> None:
            try:
                result = self._toolbox.call(params, version, ticket)
                reply = {"result": shaped(version, "tools/call", result)}
                frame: dict[str, object] = {"jsonrpc": "2.0", "id": ident, **reply}
            except RpcError as error:
                frame = error.reply(ident)
            except Exception as error:  # noqa: BLE001  # a thread's outermost frame
                failure = f"amux failed: {type(error).__name__}"
                frame = RpcError(INTERNAL_ERROR, failure).reply(ident)
            self._running.pop(ident, None)
            if ticket.cancelled:
                out.drop()
            else:
                out.send(frame)
            if "result" in frame:
                self._tell("tools/call", params, {})

        if not self._workers.add(work):
            del self._running[ident]
            raise RpcError(INTERNAL_ERROR, "Too many calls are waiting; send it again later.")
