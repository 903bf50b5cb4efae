"""uvicorn's HTTP/1.1 with bounds: connections that are idle, unfinished or too many end.

uvicorn itself waits for ever for a request's head, counts nobody's connections, and parses each
byte as it comes. Here it is given whole heads and whole bodies (`amux.hub.server.incoming`), and of
one account no more than its share (`amux.hub.server.peers`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from typing import TYPE_CHECKING, Final

import h11
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from amux.hub.server.incoming import Incoming, Malformed, TooLarge
from amux.hub.server.peers import ANSWER_SECONDS, CONNECTION_SECONDS, Peer, hung_up, peer_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from uvicorn import Config
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle
    from uvicorn.server import ServerState

    from amux.hub.server.peers import PeerKey

HEAD_SECONDS: Final = 10.0
KEEP_ALIVE_SECONDS: Final = 30
UNREAD_SECONDS: Final = 30.0
READ_BYTES: Final = 32 * 1024
PER_STRANGER: Final = 64
CALL: Final = "call"
"""Where a request's state holds its `Call`."""
_TRIES: Final = 16
_SLICE_SECONDS: Final = 0.00005


class Pool:
    """The connections of one socket, oldest first: too many, and one of them makes room.

    `most` bounds all of them; those of one other account of this machine are bounded by
    `PER_STRANGER`, those of one address by a quarter of all. A call of an authenticated caller
    is never cut for room.
    """

    def __init__(self, most: int, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._most = most
        self._loop = loop
        self._all: dict[BoundedProtocol, PeerKey | None] = {}
        self._by_peer: dict[PeerKey, dict[BoundedProtocol, None]] = {}
        self._peers: dict[PeerKey, Peer] = {}

    def peer(self, key: PeerKey) -> Peer:
        """Return what is known of this account or address."""
        found = self._peers.get(key)
        if found is None:
            self._peers = {
                one: peer for one, peer in self._peers.items() if peer.owes or one in self._by_peer
            }
            loop = self._loop or asyncio.get_running_loop()
            found = self._peers[key] = Peer(loop)
        return found

    def add(self, connection: BoundedProtocol, key: PeerKey | None) -> None:
        """Take a new connection, and cut one where there are too many."""
        self._all[connection] = key
        if key is not None:
            theirs = self._by_peer.setdefault(key, {})
            theirs[connection] = None
            bound = PER_STRANGER if isinstance(key, int) else max(PER_STRANGER, self._most // 4)
            if len(theirs) > bound:
                _make_room(theirs, connection)
        if len(self._all) > self._most:
            _make_room(self._all, connection)

    def discard(self, connection: BoundedProtocol) -> None:
        """Forget a connection that is gone or going."""
        key = self._all.pop(connection, None)
        if key is not None:
            theirs = self._by_peer[key]
            theirs.pop(connection, None)
            if not theirs:
                del self._by_peer[key]


class Call:
    """One request under way: its body, and whether its caller still waits."""

    def __init__(self, connection: BoundedProtocol, cycle: RequestResponseCycle) -> None:
        self._connection = connection
        self._cycle = cycle

    @property
    def gone(self) -> bool:
        """Say whether nobody waits for the answer any more."""
        return self._cycle.disconnected

    async def body(self, hold: Callable[[int], None], *, most: int) -> bytes:
        """Return the whole body; `hold` is told what is kept of it, and may refuse that.

        Raises TooLarge and Malformed, and starlette's ClientDisconnect when it is cut.
        """
        return await self._connection.read_body(self._cycle, hold, most)

    async def drop(self, most: int) -> bool:
        """Throw away a body that nobody wants; False if the connection has to be closed."""
        return await self._connection.drop_body(self._cycle, most)


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 whose idle and unfinished connections end, so that they cannot pile up."""

    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _peer: Peer | None = None
    _more: asyncio.Future[None] | None = None
    _in_queue: bool = False
    _body_due: bool = False
    _ended: bool = False
    _owed: float = 0.0

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        loop: asyncio.AbstractEventLoop,
        pool: Pool,
    ) -> None:
        super().__init__(config, server_state, {}, loop)
        self._pool = pool
        self._incoming = Incoming()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time in which a request's head has to arrive."""
        super().connection_made(transport)
        # Less at a time is less held for a caller that has no turn yet.
        if hasattr(transport, "max_size"):
            transport.max_size = READ_BYTES
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.cut)
        key = peer_key(transport.get_extra_info("socket"))
        if key is not None:
            self._peer = self._pool.peer(key)
            self._peer.charge(CONNECTION_SECONDS, known=False)
        self._pool.add(self, key)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers, and tell whoever waits for the rest of a body."""
        self._pool.discard(self)
        self._stop_timer()
        if self._peer is not None:
            self._peer.leave(self)
            self._charge(known=False)
        self._tell_more()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; what is done with them is done in this peer's turn."""
        self._incoming.feed(data)
        if not self.in_call and self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.cut)
        self._go_on()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Go on answering a caller who has sent all and only listens; end with any other."""
        waits = self.in_call and self._more is None and not hung_up(self.transport)
        self._ended = True
        return waits

    def advance(self) -> None:
        """Do one step with what has come: begin a request, or go on with a body."""
        if self.transport.is_closing():
            return
        if self.in_call:
            self._pace()
            self._tell_more()
            return
        began = time.perf_counter()
        try:
            head = self._incoming.head()
            if head is not None:
                self._begin(head)
        except Malformed as error:
            self.send_400_response(str(error))
        self._owed += time.perf_counter() - began
        if not self.in_call:
            self._charge(known=False)

    def wait_for_turn(self, *, waiting: bool) -> None:
        """Stop reading until this peer has a turn for the connection."""
        self._in_queue = waiting
        self._pace()

    def _go_on(self) -> None:
        if self._peer is None:
            self.advance()
        else:
            self._peer.turn(self)

    def _begin(self, head: bytes) -> None:
        """Hand a whole head to the parser, which starts the application."""
        self._stop_timer()
        self._body_due = True
        super().data_received(head)
        if self.in_call:
            self.scope["state"][CALL] = Call(self, self.cycle)
            if self._incoming.length == 0:
                self._body_due = False

    async def read_body(
        self, cycle: RequestResponseCycle, hold: Callable[[int], None], most: int
    ) -> bytes:
        """Wait for the whole body, within the bound."""
        if cycle is not self.cycle or not self._body_due:
            return b""
        kept = 0
        if self._incoming.length is not None and self._incoming.length <= most:
            hold(self._incoming.length)
            kept = most
        while (body := self._incoming.body(most)) is None:
            if self._incoming.held > kept:
                hold(self._incoming.held - kept)
                kept = self._incoming.held
            self._say_continue(cycle)
            await self._wait_for_more(cycle)
        self._pass_body(cycle)
        return body

    async def drop_body(self, cycle: RequestResponseCycle, most: int) -> bool:
        """Throw away a body of known length; a long one as it comes, whatever follows it."""
        if cycle is not self.cycle or not self._body_due:
            return True
        length = self._incoming.length
        if length is None or length > most or cycle.waiting_for_100_continue:
            return False
        if length <= READ_BYTES:
            while self._incoming.body(READ_BYTES) is None:
                await self._wait_for_more(cycle)
            self._pass_body(cycle)
            return True
        while length := length - self._incoming.drop(length):
            await self._wait_for_more(cycle)
        return False

    def _pass_body(self, cycle: RequestResponseCycle) -> None:
        """Let the parser know the body, so that it expects the next request."""
        self._body_due = False
        super().data_received(self._incoming.framed)
        cycle.body = bytearray()
        self.flow.resume_reading()
        self._pace()

    async def _wait_for_more(self, cycle: RequestResponseCycle) -> None:
        if cycle.disconnected or self._ended or self.transport.is_closing():
            raise ClientDisconnect
        self._more = self.loop.create_future()
        self._pace()
        await self._more
        if self._peer is not None:
            self._peer.charge(_SLICE_SECONDS, known=self.known)

    def _tell_more(self) -> None:
        more, self._more = self._more, None
        if more is not None and not more.done():
            more.set_result(None)

    def _say_continue(self, cycle: RequestResponseCycle) -> None:
        if cycle.waiting_for_100_continue and not self.transport.is_closing():
            cycle.waiting_for_100_continue = False
            answer = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self.transport.write(self.conn.send(answer) or b"")

    def _pace(self) -> None:
        """Read on, unless this peer has no turn or has sent more than is asked for."""
        if self.transport.is_closing():
            return
        ahead = self.in_call and self._more is None and len(self._incoming) > READ_BYTES
        if self._in_queue or ahead:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _charge(self, *, known: bool) -> None:
        owed, self._owed = self._owed, 0.0
        if self._peer is not None:
            self._peer.charge(owed, known=known)

    def on_response_complete(self) -> None:
        """Keep the connection for the next request, for a while."""
        self._stop_timer()
        self._owed += ANSWER_SECONDS
        self._charge(known="caller" in self.scope["state"])
        if self._body_due and not self.transport.is_closing() and not self._skip_body():
            self.transport.close()
        super().on_response_complete()
        if self.transport.is_closing():
            return
        self._pace()
        if len(self._incoming):
            self._go_on()
        elif self._ended:
            self.transport.close()

    def _skip_body(self) -> bool:
        """Go past a body that nobody asked for; False where it has not come."""
        self._body_due = False
        try:
            if self._incoming.body(READ_BYTES) is None:
                return False
        except (TooLarge, Malformed):
            return False
        super().data_received(self._incoming.framed)
        return True

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
