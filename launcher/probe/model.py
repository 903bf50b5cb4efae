"""A scripted model on loopback: real agents talk to it as they would to their own service.

It speaks the Responses API (Codex, Pi) and the Messages API (Claude), records each request,
and asks a script what to answer.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final, Self

from amux.launcher.errors import DeadlinePassed
from amux.launcher.probe.messages import MessagesApi
from amux.launcher.probe.responses import ResponsesApi
from amux.launcher.probe.turns import (
    Answer,
    Call,
    Compaction,
    JsonObject,
    ModelApi,
    Say,
    Script,
    ToolOffer,
    ToolResult,
    Turn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

__all__ = [
    "Answer",
    "Call",
    "Compaction",
    "JsonObject",
    "ModelApi",
    "Say",
    "Script",
    "ScriptedModel",
    "ToolOffer",
    "ToolResult",
    "Turn",
]

MAX_BODY_BYTES: Final = 64 * 1024 * 1024


@dataclass
class ScriptedModel:
    """Serve one script on a free port of 127.0.0.1 while used as a context manager."""

    script: Script
    turns: list[Turn] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._apis: tuple[ModelApi, ...] = (ResponsesApi(), MessagesApi())
        self._arrived = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="scripted-model",
            daemon=True,
        )

    @property
    def url(self) -> str:
        """Return the base URL without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait_for(self, wanted: Callable[[Turn], bool], *, deadline: float) -> Turn:
        """Return the first turn that is wanted; raise DeadlinePassed after `deadline` seconds."""
        end = time.monotonic() + deadline
        with self._arrived:
            while True:
                for turn in self.turns:
                    if wanted(turn):
                        return turn
                left = end - time.monotonic()
                if left <= 0:
                    message = f"no such model request within {deadline} s; saw {len(self.turns)}"
                    raise DeadlinePassed(message)
                self._arrived.wait(left)

    def answer(
        self, api: ModelApi, path: str, headers: Mapping[str, str], body: JsonObject
    ) -> bytes:
        """Record one request and return the server-sent events that answer it."""
        turn = api.read(path, headers, body)
        with self._arrived:
            self.turns.append(turn)
            self._arrived.notify_all()
        try:
            answers = self.script(turn)
        except BaseException as error:
            self.failures.append(error)
            raise
        listed = answers if isinstance(answers, tuple) else (answers,)
        return b"".join(
            f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
            for name, data in api.events(listed, turn)
        )

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Handler(BaseHTTPRequestHandler):
            """One connection of an agent."""

            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._reply(200, "application/json", b"")

            def do_GET(self) -> None:
                self._reply(200, "application/json", b'{"data": [], "models": []}')

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", "0"))
                raw = self.rfile.read(min(length, MAX_BODY_BYTES))
                path = self.path.partition("?")[0]
                if path.endswith("/count_tokens"):
                    self._reply(200, "application/json", b'{"input_tokens": 10}')
                    return
                api = next((one for one in model._apis if path.endswith(one.suffix)), None)
                if api is None:
                    self._reply(404, "application/json", b'{"error": {"message": "not scripted"}}')
                    return
                headers = {name.lower(): value for name, value in self.headers.items()}
                events = model.answer(api, path, headers, json.loads(raw))
                self._reply(200, "text/event-stream", events)

            def _reply(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # inherited name
                """Stay silent: the requests are recorded, not logged."""

        return Handler
