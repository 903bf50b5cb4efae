"""uvicorn on a listening socket of ours, with TLS of ours, without its signals and its clock."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import resource
import socket
import ssl
from typing import TYPE_CHECKING, Final

import uvicorn

from amux.hub.errors import HomeRefused
from amux.hub.server.incoming import HEAD_BYTES
from amux.hub.server.peers import HANDSHAKE_SECONDS as HANDSHAKE_COST
from amux.hub.server.peers import peer_key
from amux.hub.server.protocol import KEEP_ALIVE_SECONDS, BoundedProtocol, Pool
from amux.hub.server.sockets import BACKLOG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp

HANDSHAKE_SECONDS: Final = 10.0
ACCEPT_PAUSE: Final = 0.1
AT_ONCE: Final = 16
MUTE_SECONDS: Final = 1.0
GRACE_SECONDS: Final = 15
MOST_CONNECTIONS: Final = 4096
_OWN_FILES: Final = 256


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
        self._pool = Pool(most_connections())

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
            return BoundedProtocol(self.config, self.server_state, loop, self._pool)

        self.servers = []
        if self._tls is None:
            # asyncio takes as many connections in one go as it may queue; the queue is longer.
            server = await loop.create_server(connection, sock=self._bound, backlog=AT_ONCE)
            self._bound.listen(BACKLOG)
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
                shake = _shake_hands(channel, connection, tls, self._pool)
                task = group.create_task(shake)
                shaking[task] = None
                task.add_done_callback(shaking.pop)
                # A queue that never empties would leave nobody else a turn.
                await asyncio.sleep(0)

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
    channel: socket.socket,
    connection: Callable[[], asyncio.Protocol],
    tls: ssl.SSLContext,
    pool: Pool,
) -> None:
    """Do the TLS handshake of one accepted connection, which then lives on its own."""
    loop = asyncio.get_running_loop()
    key = peer_key(channel)
    peer = None if key is None else pool.peer(key)
    # What fails here has closed its socket already.
    with contextlib.suppress(OSError, ssl.SSLError):
        if peer is not None:
            await _first_bytes(channel)
            await peer.rest()
            peer.charge(HANDSHAKE_COST, known=False)
        await loop.connect_accepted_socket(
            connection, channel, ssl=tls, ssl_handshake_timeout=HANDSHAKE_SECONDS
        )


async def _first_bytes(channel: socket.socket) -> None:
    """Wait until the other side has sent something; a mute one costs, and owes, nothing."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(channel, came.set)
    data = b""
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            await came.wait()
        data = channel.recv(1, socket.MSG_PEEK)
    finally:
        loop.remove_reader(channel)
        if not data:
            channel.close()
    if not data:
        raise ConnectionAbortedError


@functools.cache
def most_connections() -> int:
    """Return how many connections one socket may have: all share the process's descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(16, min(MOST_CONNECTIONS, (soft - _OWN_FILES) // 4))


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
