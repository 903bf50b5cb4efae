"""uvicorn's HTTP/1.1 with bounds: connections that are idle, unfinished or too many end.

uvicorn itself waits for ever for a request's head and counts nobody's connections.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import struct
from typing import TYPE_CHECKING, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from uvicorn import Config
    from uvicorn.server import ServerState

HEAD_SECONDS: Final = 10.0
KEEP_ALIVE_SECONDS: Final = 30
UNREAD_SECONDS: Final = 30.0
HEAD_BYTES: Final = 16 * 1024
READ_BYTES: Final = 32 * 1024
# A chunked body with its framing; chunks of one byte would cost a second of work per MiB.
CHUNKED_BYTES: Final = 640 * 1024
PER_STRANGER: Final = 64
_TRIES: Final = 16


class Pool:
    """The connections of one socket, oldest first: too many, and one of them makes room.

    `most` bounds all of them, `PER_STRANGER` those of one other account of this machine.
    A call of an authenticated caller is never cut for room.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: dict[BoundedProtocol, int | None] = {}
        self._by_stranger: dict[int, dict[BoundedProtocol, None]] = {}

    def add(self, connection: BoundedProtocol, stranger: int | None) -> None:
        """Take a new connection, and cut one where there are too many."""
        self._all[connection] = stranger
        if stranger is not None:
            theirs = self._by_stranger.setdefault(stranger, {})
            theirs[connection] = None
            if len(theirs) > PER_STRANGER:
                _make_room(theirs, connection)
        if len(self._all) > self._most:
            _make_room(self._all, connection)

    def discard(self, connection: BoundedProtocol) -> None:
        """Forget a connection that is gone or going."""
        stranger = self._all.pop(connection, None)
        if stranger is not None:
            theirs = self._by_stranger[stranger]
            theirs.pop(connection, None)
            if not theirs:
                del self._by_stranger[stranger]


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 whose idle and unfinished connections end, so that they cannot pile up."""

    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _chunked: int = 0

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        loop: asyncio.AbstractEventLoop,
        pool: Pool,
    ) -> None:
        super().__init__(config, server_state, {}, loop)
        self._pool = pool

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time in which a request's head has to arrive."""
        super().connection_made(transport)
        # Less at a time is less held for a caller that has no turn yet.
        if hasattr(transport, "max_size"):
            transport.max_size = READ_BYTES
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.cut)
        self._pool.add(self, _stranger(transport))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._pool.discard(self)
        self._stop_timer()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; a head that began but is not whole yet has its time."""
        if not self.in_call:
            self._chunked = 0
        super().data_received(data)
        if self.in_call:
            self._stop_timer()
            if (b"transfer-encoding", b"chunked") in self.headers:
                self._chunked += len(data)
                if self._chunked > CHUNKED_BYTES:
                    self.cut()
        elif self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.cut)

    def on_response_complete(self) -> None:
        """Keep the connection for the next request, for a while."""
        self._stop_timer()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """End an idle connection, also one whose client does not read its answer."""
        if not self.transport.is_closing():
            self.cut()

    def pause_writing(self) -> None:
        """Give a client that leaves its answers unread some time to take them."""
        super().pause_writing()
        if self._unread_timer is None:
            self._unread_timer = self.loop.call_later(UNREAD_SECONDS, self.cut)

    def resume_writing(self) -> None:
        """Go on writing."""
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP with the Hub's own kind of error."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.cut()
            return
        body = json.dumps({"error": {"code": "invalid_request", "message": msg}}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        for part in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(part) or b"")
        self.transport.close()

    @property
    def in_call(self) -> bool:
        """Say whether a request's head is complete and its answer is not."""
        cycle: object = self.cycle  # None before the first request, whatever uvicorn declares
        return cycle is not None and not self.cycle.response_complete

    @property
    def known(self) -> bool:
        """Say whether a call of an authenticated caller is under way."""
        return self.in_call and "caller" in self.scope["state"]

    @property
    def unread(self) -> bool:
        """Say whether the client leaves an answer unread."""
        return self.transport.get_write_buffer_size() > 0

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def cut(self) -> None:
        """End the connection at once."""
        self._pool.discard(self)
        self._stop_timer()
        self.transport.abort()


def _make_room(connections: Iterable[BoundedProtocol], newest: BoundedProtocol) -> None:
    """Cut the oldest connection that is not in a known caller's call, else the newest."""
    for connection in list(itertools.islice(connections, _TRIES)):
        if not connection.known:
            connection.cut()
            return
    newest.cut()


def _stranger(transport: asyncio.Transport) -> int | None:
    """Return the uid of another account at the other end of a Unix socket."""
    channel = transport.get_extra_info("socket")
    if channel is None or channel.family != socket.AF_UNIX:
        return None
    credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid = int(struct.unpack("3i", credentials)[1])
    return None if uid in {0, os.geteuid()} else uid
