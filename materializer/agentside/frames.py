"""JSON-RPC frames: one JSON value a line, in and out."""

from __future__ import annotations

import json
import os
import select
import threading

from amux.materializer.agentside.streams import to_json, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FRAME = 4 * 1024 * 1024  # bytes

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603


class RpcError(Exception):
    """A JSON-RPC error: what went wrong with a request, not with what a tool did."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def reply(self, ident: object) -> dict[str, object]:
        """Return the frame that answers the request `ident` (None where it has none)."""
        error: dict[str, object] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return {"jsonrpc": "2.0", "id": ident, "error": error}


class Output:
    """The frames' way out, one at a time; after a failed write everything is dropped."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self.broken = False

    def expect(self) -> None:
        """Announce one reply: `send` or `drop` follows."""

    def send(self, frame: object) -> None:
        """Write one frame."""
        line = to_json(frame) + b"\n"
        with self._lock:
            if self.broken:
                return
            try:
                write_all(self._fd, line)
            except OSError:
                self.broken = True

    def drop(self) -> None:
        """Say that the announced reply is not sent."""


class Batch(Output):
    """The replies to a batch: one frame, when all of them are there."""

    def __init__(self, out: Output) -> None:
        super().__init__(-1)
        self._out = out
        self._replies: list[object] = []
        self._missing = 1  # the batch itself, until it is closed

    def expect(self) -> None:
        """Announce one reply: `send` or `drop` follows."""
        with self._lock:
            self._missing += 1

    def send(self, frame: object) -> None:
        """Add one announced reply."""
        with self._lock:
            self._replies.append(frame)
        self.drop()

    def drop(self) -> None:
        """Count one reply as settled, and write them all after the last."""
        with self._lock:
            self._missing -= 1
            whole = self._missing == 0 and bool(self._replies)
        if whole:
            self._out.send(self._replies)


def lines(fd: int) -> Iterator[bytes]:
    """Yield the lines that are not empty, cut to one byte above `MAX_FRAME`."""
    rest = b""
    for piece in _pieces(fd):
        *ended, rest = (rest + piece).split(b"\n")
        yield from (line for line in ended if line.strip())
        rest = rest[: MAX_FRAME + 1]


def _pieces(fd: int) -> Iterator[bytes]:
    """Yield what is read, and an end of line at the end."""
    while True:
        try:
            piece = os.read(fd, 65536)
        except BlockingIOError:
            select.select([fd], [], [])
            continue
        yield piece or b"\n"
        if not piece:
            return


def decode(line: bytes) -> object:
    """Return the JSON value of a line; raise `RpcError`."""
    if len(line) > MAX_FRAME:
        raise RpcError(PARSE_ERROR, f"The frame is longer than {MAX_FRAME} bytes.")
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RpcError(PARSE_ERROR, "The frame is not JSON.") from error
