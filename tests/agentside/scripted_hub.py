"""A Hub that answers by script on a real socket: for what the real one cannot be made to do on cue.

It can stay silent, break off, change a document between two pages, or take a grant back.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from fixtures.waiting import SECONDS

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from pathlib import Path

JsonObject: TypeAlias = dict[str, Any]
ABSENT = "absent"
PAGE = 7000


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: JsonObject


@dataclass(frozen=True, slots=True)
class Refusal(Exception):
    """Answer with the Hub's error of this code."""

    status: int
    code: str
    fields: JsonObject = field(default_factory=dict)


Script: TypeAlias = Callable[[Asked], "JsonObject | bytes | None"]


class ScriptedHub:
    """Serve a script; None from it means silence until the Hub is closed."""

    def __init__(self, listener: socket.socket, script: Script) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.closed = threading.Event()
        self._listener = listener
        self._threads: list[threading.Thread] = []
        self._main = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._main.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._main.join(SECONDS)
        for thread in self._threads:
            thread.join(SECONDS)

    def paths(self) -> list[str]:
        """Return the paths asked for, in order, without the last part's prefix."""
        return [asked.path.rpartition("/")[2] for asked in self.asked]

    def _accept(self) -> None:
        while True:
            try:
                channel, _ = self._listener.accept()
            except OSError:
                if self.closed.is_set():
                    return
                continue  # a client that refused our certificate
            thread = threading.Thread(target=self._serve, args=(channel,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, channel: socket.socket) -> None:
        with channel, contextlib.suppress(OSError, ValueError), channel.makefile("rb") as stream:
            asked = _read(stream)
            self.asked.append(asked)
            try:
                answer = self.script(asked)
            except Refusal as refusal:
                body = {"error": {"code": refusal.code, "message": "no", **refusal.fields}}
                channel.sendall(http(refusal.status, json.dumps(body).encode()))
                return
            if answer is None:
                self.closed.wait(SECONDS)
            elif isinstance(answer, bytes):
                channel.sendall(answer)
            else:
                channel.sendall(http(200, json.dumps(answer, ensure_ascii=False).encode()))


def http(status: int, body: bytes) -> bytes:
    """Return an HTTP answer with a length."""
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@contextlib.contextmanager
def unix_hub(path: Path, script: Script) -> Iterator[ScriptedHub]:
    """Serve on a Unix socket."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(64)
    with ScriptedHub(listener, script) as hub:
        yield hub


@contextlib.contextmanager
def tls_hub(context: ssl.SSLContext, script: Script) -> Iterator[tuple[ScriptedHub, int]]:
    """Serve on a TLS port of 127.0.0.1; yields the Hub and its port."""
    plain = socket.create_server(("127.0.0.1", 0))
    port = plain.getsockname()[1]
    with ScriptedHub(context.wrap_socket(plain, server_side=True), script) as hub:
        yield hub, port


def _read(stream: Any) -> Asked:  # noqa: ANN401  # a buffered reader of a socket
    method, path, _ = stream.readline().decode().split(" ")
    headers: dict[str, str] = {}
    while line := stream.readline().decode().strip():
        name, _, value = line.partition(": ")
        headers[name.lower()] = value
    raw = stream.read(int(headers.get("content-length", "0")))
    return Asked(method, path, headers, json.loads(raw) if raw else {})


@dataclass
class Documents:
    """A script that keeps documents as the Hub does, without its checks."""

    texts: dict[str, str] = field(default_factory=dict)
    granted: bool = True

    def __call__(self, asked: Asked) -> JsonObject:
        """Answer one request."""
        if not self.granted:
            raise Refusal(403, "memory_disabled")
        verb = asked.path.rpartition("/")[2]
        if verb == "health":
            return {"version": "0"}
        if verb == "capability":
            return {"enabled": True, "binding": "global", "limits": {}}
        path = asked.body.get("path", "")
        if verb == "get":
            return self._get(path, asked.body.get("offset", 0))
        if verb == "upsert":
            self._expect(path, asked.body["expected_revision"])
            self.texts[path] = asked.body["content"]
            return {"path": path, "revision": self.revision(path), "unchanged": False}
        if verb == "forget":
            self._expect(path, asked.body["expected_revision"])
            absent = self.texts.pop(path, None) is None
            return {"path": path, "revision": ABSENT, "already_absent": absent}
        raise Refusal(404, "invalid_request")

    def revision(self, path: str) -> str:
        """Return the revision that the document has now."""
        text = self.texts.get(path)
        return ABSENT if text is None else hashlib.sha256(text.encode()).hexdigest()

    def _expect(self, path: str, revision: str) -> None:
        if revision != self.revision(path):
            raise Refusal(409, "conflict", {"revision": self.revision(path)})

    def _get(self, path: str, offset: int) -> JsonObject:
        raw = self.texts.get(path, "").encode()
        piece = raw[offset : offset + PAGE].decode(errors="ignore").encode()
        end = offset + len(piece)
        return {
            "path": path,
            "exists": path in self.texts,
            "revision": self.revision(path),
            "text": piece.decode(),
            "truncated": end < len(raw),
            "next_offset": end if end < len(raw) else None,
        }
