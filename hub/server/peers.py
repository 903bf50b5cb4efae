"""Share the event loop between the accounts that call, before anybody is authenticated.

Whatever a connection of another account or machine makes the loop do is charged to that account,
or address. While something is owed, its connections are not read; afterwards they go on one by
one. So one peer takes a bounded part of the loop's time, however many connections it has and
whatever it sends. The account that owns the Hub, and root, owe nothing.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

UNKNOWN_REST: Final = 9.0
"""Seconds of rest for each second of work that no authenticated caller asked for."""
KNOWN_REST: Final = 1.0
CONNECTION_SECONDS: Final = 0.0001
"""What taking a connection costs; measured work is charged as it was measured."""
ANSWER_SECONDS: Final = 0.0005
HANDSHAKE_SECONDS: Final = 0.0015
PeerKey: TypeAlias = int | str
"""The uid of another account, or the address of another machine."""


class Turned(Protocol):
    """A connection that has a turn now and then."""

    def advance(self) -> None:
        """Do one step."""

    def wait_for_turn(self, *, waiting: bool) -> None:
        """Stop reading, or go on."""


class Peer:
    """The connections of one account or address, and what it owes."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] | None = None
    ) -> None:
        self._loop = loop
        self._clock = clock or loop.time
        self._free = 0.0
        self._queue: dict[Turned, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def owes(self) -> float:
        """Return for how many seconds nothing of this peer is looked at."""
        return max(0.0, self._free - self._clock())

    def charge(self, seconds: float, *, known: bool) -> None:
        """Count work that was done."""
        rest = KNOWN_REST if known else UNKNOWN_REST
        self._free = max(self._free, self._clock()) + seconds * rest

    def turn(self, connection: Turned) -> None:
        """Let the connection do a step, now or when it is its turn."""
        if not self._queue and not self.owes:
            connection.advance()
            return
        if connection not in self._queue:
            self._queue[connection] = None
            connection.wait_for_turn(waiting=True)
        self._set_alarm()

    def leave(self, connection: Turned) -> None:
        """Forget a connection that is gone."""
        self._queue.pop(connection, None)

    async def rest(self) -> None:
        """Wait until nothing is owed."""
        while seconds := self.owes:  # noqa: ASYNC110  # it is owed by the clock
            await asyncio.sleep(seconds)

    def wake(self) -> None:
        """Let the connection that waits longest do a step, unless something is owed still."""
        self._timer = None
        if self._queue and not self.owes:
            connection = next(iter(self._queue))
            del self._queue[connection]
            connection.wait_for_turn(waiting=False)
            connection.advance()
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._timer is None and self._queue:
            self._timer = self._loop.call_later(self.owes, self.wake)


def hung_up(transport: asyncio.Transport) -> bool:
    """Say whether the other end of an ended connection is closed, and not only silent.

    Over TCP that cannot be told apart, and counts as closed.
    """
    channel = transport.get_extra_info("socket")
    if channel is None or channel.family != socket.AF_UNIX:
        return True
    poll = select.poll()
    poll.register(channel.fileno(), 0)
    return bool(poll.poll(0))


def peer_key(channel: socket.socket | None) -> PeerKey | None:
    """Return whose connection it is; None for the Hub's own account, root, and no socket."""
    if channel is None:
        return None
    if channel.family != socket.AF_UNIX:
        try:
            return str(channel.getpeername()[0])
        except OSError:
            return ""
    credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid = int(struct.unpack("3i", credentials)[1])
    return None if uid in {0, os.geteuid()} else uid
