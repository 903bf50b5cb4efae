"""What stands before every call: Host and Origin are checked, and one log line is written."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Final

from amux.hub import logs
from amux.hub.logs import ACCESS
from amux.hub.residence import HOME_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from amux.hub.service import Door

_CALLS: Final = frozenset(
    {
        "/v1/health",
        "/v1/memory/capability",
        "/v1/memory/search",
        "/v1/memory/get",
        "/v1/memory/upsert",
        "/v1/memory/forget",
        "/v1/system/config",
    }
)
_HOME: Final = HOME_HEADER.lower().encode()
STRANGER_LINES: Final = 60
STRANGER_SECONDS: Final = 60.0
"""Log lines of unknown callers in such a time, through one door."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})


class Quota:
    """Let so many through in each span of time, and count the rest."""

    def __init__(
        self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._until = 0.0
        self._passed = 0
        self.kept_back = 0

    def passes(self) -> bool:
        """Say whether one more goes through now."""
        now = self._clock()
        if now >= self._until:
            self._until = now + self._seconds
            self._passed = 0
        self._passed += 1
        if self._passed > self._most:
            self.kept_back += 1
            return False
        return True

    def collect(self) -> int:
        """Return how many were kept back since this was last asked."""
        count, self.kept_back = self.kept_back, 0
        return count


class Gate:
    """Refuse an unknown Host or home (421) and any Origin (403), then pass the call on."""

    def __init__(
        self, app: ASGIApp, *, hosts: frozenset[str], door: Door, home: str | None = None
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._door = door
        self._strangers = Quota(STRANGER_LINES, STRANGER_SECONDS)
        # A caller who met the home before it had its identity knows device and inode alone.
        self._homes = () if home is None else (home.encode(), _nameless(home))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        began = time.perf_counter()
        status = 0
        scope.setdefault("state", {})

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is None:
                await self._app(scope, receive, noting)
            else:
                await _answer(noting, *refusal)
        finally:
            self._log(scope, status, time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        names = [value for name, value in scope["headers"] if name == b"host"]
        if len(names) != 1 or _host(names[0]) not in self._hosts:
            return 421, "invalid_request", "this Hub does not answer to that Host"
        homes = [value for name, value in scope["headers"] if name == _HOME]
        if self._homes and not all(home in self._homes for home in homes):
            return 421, "invalid_request", "the Hub that answers here serves another home"
        if any(name == b"origin" for name, _ in scope["headers"]):
            return 403, "forbidden", "calls from web pages are refused"
        return None

    def _log(self, scope: Scope, status: int, seconds: float) -> None:
        """Write who called what and how it ended: no path, query, content or token."""
        state = scope["state"]
        caller = state.get("caller")
        if caller is None:
            # Whoever may not call must not push what others did out of the log either.
            if not self._strangers.passes():
                return
            if missing := self._strangers.collect():
                logs.event("calls not logged", door=self._door.value, count=missing)
        path = scope["path"]
        if path not in _CALLS:
            path = "/v1/launches/…" if path.startswith("/v1/launches/") else "?"
        fields: dict[str, object] = {
            "door": self._door.value,
            "method": scope["method"] if scope["method"] in _METHODS else "?",
            "call": path,
            "status": status,
            "code": state.get("code"),
            "actor": None if caller is None else caller.kind,
            "credential": None if caller is None else caller.credential_id,
            "ms": round(seconds * 1000, 1),
        }
        ACCESS.log(logging.INFO, "call", extra={"fields": fields})


def _nameless(home: str) -> bytes:
    return (home.rpartition(":")[0] + ":").encode()


def _host(value: bytes) -> str:
    """Return the host name without its port, lower case."""
    text = value.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


async def _answer(send: Send, status: int, code: str, message: str) -> None:
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
