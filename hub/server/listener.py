"""Listening sockets that we bind ourselves, and uvicorn on top of them with bounds of its own.

uvicorn binds Unix sockets with mode 0666 and waits for ever for a request's head; both
are decided here instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import resource
import secrets
import socket
import ssl
from typing import TYPE_CHECKING, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from hub.errors import HomeRefused
from hub.unixsocket import LONGEST_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from starlette.types import ASGIApp

HEAD_SECONDS: Final = 10.0
KEEP_ALIVE_SECONDS: Final = 30
UNREAD_SECONDS: Final = 30.0
HANDSHAKE_SECONDS: Final = 10.0
ACCEPT_PAUSE: Final = 0.1
MUTE_SECONDS: Final = 1.0
GRACE_SECONDS: Final = 15
HEAD_BYTES: Final = 16 * 1024
# A chunked body with its framing; chunks of one byte would cost a second of work per MiB.
CHUNKED_BYTES: Final = 640 * 1024
MOST_CONNECTIONS: Final = 4096
BACKLOG: Final = 4096
_OWN_FILES: Final = 256


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 whose idle and unfinished connections end, so that they cannot pile up."""

    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _chunked: int = 0
    born: float = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time in which a request's head has to arrive."""
        super().connection_made(transport)
        self.born = self.loop.time()
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.cut)
        if len(self.connections) > most_connections():
            peers = [peer for peer in self.connections if isinstance(peer, BoundedProtocol)]
            spare = [peer for peer in peers if not peer.known]
            min(spare, key=lambda peer: peer.born, default=self).cut()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
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
        self._stop_timer()
        self.transport.abort()


class Listener(uvicorn.Server):
    """Serve one application on one socket until `stop`."""

    def __init__(
        self, app: ASGIApp, bound: socket.socket, *, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=BoundedProtocol,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=GRACE_SECONDS,
                h11_max_incomplete_event_size=HEAD_BYTES,
            )
        )
        self._bound = bound
        self._tls = tls
        self._stop = asyncio.Event()
        self._accepting: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Stop listening and let the calls in flight finish; who does not read is cut."""
        self.should_exit = True
        self._stop.set()
        if self._accepting is not None:
            self._accepting.cancel()
        asyncio.get_running_loop().call_later(MUTE_SECONDS, self._cut_mute)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on our own socket, with our own TLS context."""
        del sockets
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            return BoundedProtocol(self.config, self.server_state, {}, loop)

        self.servers = []
        if self._tls is None:
            server = await loop.create_server(connection, sock=self._bound, backlog=BACKLOG)
            self.servers.append(server)
        else:
            self._accepting = loop.create_task(self._accept(connection, self._tls))
        self.started = True

    async def _accept(
        self, connection: Callable[[], asyncio.Protocol], tls: ssl.SSLContext
    ) -> None:
        """Take TCP connections; too many without a handshake, and the oldest makes room.

        asyncio's own server has no such bound, and its half-open connections would take
        the descriptors of the Unix sockets too.
        """
        loop = asyncio.get_running_loop()
        shaking: dict[asyncio.Task[None], None] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    channel, _ = await loop.sock_accept(self._bound)
                except OSError:
                    # Out of descriptors, or the client is gone already.
                    await asyncio.sleep(ACCEPT_PAUSE)
                    continue
                if len(shaking) >= most_connections():
                    next(iter(shaking)).cancel()
                task = group.create_task(_shake_hands(channel, connection, tls))
                shaking[task] = None
                task.add_done_callback(shaking.pop)

    def _cut_mute(self) -> None:
        for peer in list(self.server_state.connections):
            if isinstance(peer, BoundedProtocol) and (peer.unread or not peer.in_call):
                peer.cut()

    async def main_loop(self) -> None:
        """Wait for `stop` without waking up."""
        await self._stop.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process: it has several listeners."""
        yield


async def _shake_hands(
    channel: socket.socket, connection: Callable[[], asyncio.Protocol], tls: ssl.SSLContext
) -> None:
    """Do the TLS handshake of one accepted connection, which then lives on its own."""
    loop = asyncio.get_running_loop()
    # What fails here has closed its socket already.
    with contextlib.suppress(OSError, ssl.SSLError):
        await loop.connect_accepted_socket(
            connection, channel, ssl=tls, ssl_handshake_timeout=HANDSHAKE_SECONDS
        )


@functools.cache
def most_connections() -> int:
    """Return how many connections one socket may have: all share the process's descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(16, min(MOST_CONNECTIONS, (soft - _OWN_FILES) // 4))


def bind_unix(path: Path, *, mode: int) -> socket.socket:
    """Return a listening socket at `path`, which appears only once it can be used.

    A path over 107 bytes is bound through a descriptor of its folder. An older socket of
    that name is replaced: the caller holds the root's lock. Raises HomeRefused.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    name = f".{path.name}.{secrets.token_hex(4)}"
    direct = str(path.with_name(name))
    short = len(os.fsencode(direct)) <= LONGEST_PATH
    try:
        mask = os.umask(0o777 & ~mode)
        try:
            bound.bind(direct if short else f"/proc/self/fd/{folder}/{name}")
        finally:
            os.umask(mask)
        os.chmod(name, mode, dir_fd=folder)
        bound.listen(BACKLOG)
        os.rename(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        bound.close()
        raise HomeRefused(f"cannot make the socket {path}: {error.strerror}") from error
    finally:
        os.close(folder)
    bound.setblocking(False)  # noqa: FBT003  # the socket's own signature
    return bound


def bind_tcp(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket. Raises HomeRefused."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        raise HomeRefused(f"cannot listen on {host}:{port}: {error.strerror}") from error
    bound.setblocking(False)  # noqa: FBT003  # the socket's own signature
    return bound


def tls_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return the server's side of TLS 1.2 or newer. Raises HomeRefused."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise HomeRefused(
            f"cannot use hub.tls_cert {certificate!r} with hub.tls_key {key!r}: "
            f"{error.strerror or type(error).__name__}"
        ) from error
    return context
