"""The MCP server on standard input and output: frames in, frames out, nothing else.

The main thread reads. Each tool call runs in a thread of its own, `WORKERS` at most at a
time, so that a slow call neither delays another nor keeps a cancellation from being seen.
"""

from __future__ import annotations

import json
import os
import threading

from materializer.agentside import VERSION
from materializer.agentside.connection import find_connection
from materializer.agentside.errors import DONE, Failure
from materializer.agentside.hub import call, capability
from materializer.agentside.pages import Pages
from materializer.agentside.streams import (
    STDERR,
    STDIN,
    STDOUT,
    complain,
    to_json,
    write_all,
)
from materializer.agentside.tools import TOOLS
from materializer.agentside.transport import Exchange

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
VERBS = {
    "amux.memory_search": "search",
    "amux.memory_get": "get",
    "amux.memory_upsert": "upsert",
    "amux.memory_forget": "forget",
}
CONTINUE = "amux.result_continue"
WORKERS = 8
MAX_FRAME = 4 * 1024 * 1024  # bytes
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602


class RpcError(Exception):
    """A JSON-RPC error, for what is not a tool's own answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def serve(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Serve until standard input ends; returns the exit status."""
    if argv:
        raise Failure("invalid_request", "amux mcp takes no arguments.")
    out = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    Server(out, environ).run()
    return DONE


class Server:
    """One client's session."""

    def __init__(self, out: int, environ: Mapping[str, str]) -> None:
        self._out = out
        self._environ = environ
        self._pages = Pages()
        self._slots = threading.Semaphore(WORKERS)
        self._writing = threading.Lock()
        self._lock = threading.Lock()
        self._running: dict[object, Exchange | None] = {}

    def run(self) -> None:
        """Read frames until the end of the input, then finish what is running."""
        threading.Thread(target=self._check, daemon=True).start()
        threads: list[threading.Thread] = []
        for frame in _frames(STDIN):
            threads = [thread for thread in threads if thread.is_alive()]
            self._receive(frame, threads)
        for thread in threads:
            thread.join()

    def _check(self) -> None:
        """Ask once whether memory can be used, and say on standard error if it cannot."""
        try:
            capability(find_connection(self._environ))
        except Failure as failure:
            complain(to_json(failure.body()) + b"\n")

    def _receive(self, frame: bytes | None, threads: list[threading.Thread]) -> None:
        if frame is None:
            self._send_error(None, PARSE_ERROR, "The frame is too long.")
            return
        try:
            message = json.loads(frame)
        except (ValueError, RecursionError):
            self._send_error(None, PARSE_ERROR, "The frame is not JSON.")
            return
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            if not (isinstance(message, dict) and ("result" in message or "error" in message)):
                self._send_error(None, INVALID_REQUEST, "The frame is not a request.")
            return
        method, params = message["method"], message.get("params")
        if "id" not in message:
            self._notified(method, params)
            return
        ident = message["id"]
        if isinstance(ident, bool) or not isinstance(ident, (str, int)):
            self._send_error(None, INVALID_REQUEST, "A request's id is a string or a number.")
            return
        if method == "tools/call":
            with self._lock:
                self._running[ident] = None
            thread = threading.Thread(target=self._work, args=(ident, params), daemon=True)
            threads.append(thread)
            thread.start()
            return
        try:
            self._send({"jsonrpc": "2.0", "id": ident, "result": _answer(method, params)})
        except RpcError as error:
            self._send_error(ident, error.code, error.message)

    def _notified(self, method: str, params: object) -> None:
        if method != "notifications/cancelled" or not isinstance(params, dict):
            return
        ident = params.get("requestId")
        if isinstance(ident, (str, int)):
            with self._lock:
                exchange = self._running.pop(ident, None)
            if exchange is not None:
                exchange.abandon()

    def _work(self, ident: object, params: object) -> None:
        with self._slots:
            try:
                reply: dict[str, object] = {"result": self._tool(ident, params)}
            except RpcError as error:
                reply = {"error": {"code": error.code, "message": error.message}}
        with self._lock:
            cancelled = ident not in self._running
            self._running.pop(ident, None)
        if not cancelled:
            self._send({"jsonrpc": "2.0", "id": ident, **reply})

    def _tool(self, ident: object, params: object) -> dict[str, object]:
        if not isinstance(params, dict) or not isinstance(params.get("name"), str):
            raise RpcError(INVALID_PARAMS, "tools/call needs a name.")
        name = params["name"]
        arguments = params.get("arguments")
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            raise RpcError(INVALID_PARAMS, "The arguments of a tool are an object.")
        if name not in VERBS and name != CONTINUE:
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
        given = {key: value for key, value in arguments.items() if value is not None}
        try:
            connection = find_connection(self._environ)
            exchange = Exchange(connection)
            with self._lock:
                if ident in self._running:
                    self._running[ident] = exchange
            if name == CONTINUE:
                capability(connection, exchange)
                content = self._pages.following(given.get("token"))
            else:
                answer = call(connection, VERBS[name], given, exchange)
                content = self._pages.first(to_json(answer).decode())
        except Failure as failure:
            text = to_json(failure.body()).decode()
            return {"content": [{"type": "text", "text": text}], "isError": True}
        return {"content": content, "isError": False}

    def _send_error(self, ident: object, code: int, message: str) -> None:
        error = {"code": code, "message": message}
        self._send({"jsonrpc": "2.0", "id": ident, "error": error})

    def _send(self, message: dict[str, object]) -> None:
        with self._writing:
            write_all(self._out, to_json(message) + b"\n")


def _answer(method: str, params: object) -> dict[str, object]:
    if method == "initialize":
        asked = params.get("protocolVersion") if isinstance(params, dict) else None
        return {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[-1],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": "amux", "version": VERSION},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": TOOLS}
    raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")


def _frames(fd: int) -> Iterator[bytes | None]:
    """Yield the lines that are not empty; None stands for one that is too long."""
    rest = bytearray()
    skipping = False
    while True:
        piece = os.read(fd, 65536)
        if not piece:
            break
        rest += piece
        while b"\n" in rest:
            line, _, rest = rest.partition(b"\n")
            if skipping:
                skipping = False
            elif line.strip():
                yield bytes(line)
        if len(rest) > MAX_FRAME:
            if not skipping:
                yield None
            skipping = True
            rest.clear()
    if rest.strip() and not skipping:
        yield bytes(rest)
