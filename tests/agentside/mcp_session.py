"""A client that speaks frames as a test spells them, with a deadline on every answer."""

from __future__ import annotations

import json
import queue
import threading
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    import subprocess

Frame: TypeAlias = dict[str, Any]
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class McpSession:
    """One running MCP server and what it has sent."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.lines: list[bytes] = []
        self._arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._drain, daemon=True),
        ]
        self._complaints: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._next = 1000

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, within: float = SECONDS) -> int:
        """End the input and return the exit status."""
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            status = self.process.wait(within)
        except BaseException:
            self.process.kill()
            raise
        for thread in self._threads:
            thread.join(SECONDS)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return status

    def send(self, frame: object) -> None:
        """Send one frame, or bytes as they are."""
        assert self.process.stdin is not None
        raw = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
        self.process.stdin.write(raw + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Any:  # noqa: ANN401  # a frame, or a list of them
        """Return the next frame that the server sent."""
        return json.loads(self._arrived.get(timeout=SECONDS))

    def ask(self, method: str, params: object = None, ident: object = None) -> Frame:
        """Send a request and return the frame that answers it, which must come next."""
        self._next += 1
        used = self._next if ident is None else ident
        request: Frame = {"jsonrpc": "2.0", "id": used, "method": method}
        if params is not None:
            request["params"] = params
        self.send(request)
        answer = self.receive()
        assert isinstance(answer, dict)
        assert answer["id"] == used
        assert answer["jsonrpc"] == "2.0"
        return answer

    def initialize(self, version: str = "2025-11-25") -> Frame:
        """Do the handshake and return the result."""
        params = {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        result = self.ask("initialize", params)["result"]
        assert isinstance(result, dict)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    def call(self, tool: str, **arguments: object) -> Frame:
        """Call a tool and return its result."""
        name = tool if "." in tool else f"amux.memory_{tool}"
        result = self.ask("tools/call", {"name": name, "arguments": arguments})["result"]
        assert isinstance(result, dict)
        return result

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self._arrived.put(line)

    def complaint(self) -> bytes:
        """Return the next line of standard error."""
        return self._complaints.get(timeout=SECONDS)

    def _drain(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._complaints.put(line)


def error_in(result: Frame) -> dict[str, Any]:
    """Return the error that a tool answered with."""
    assert result["isError"] is True
    (block,) = result["content"]
    error = json.loads(block["text"])["error"]
    assert isinstance(error, dict)
    return error
