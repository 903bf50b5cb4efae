"""What happens to a supervisor's sessions, told to everybody who watches."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from dataclasses import asdict, dataclass
from enum import StrEnum
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from amux.launcher.kinds import seconds
from amux.launcher.session.store import timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from amux.launcher.process.spawn import ExitStatus
    from amux.launcher.report import LaunchReport
    from amux.launcher.session.notice import Notice
    from amux.providers.base import Sighting


class EventKind(StrEnum):
    """LAUNCHED and ENDED come once for each run; FAILED instead of both.

    REFUSED: a resume that never began, and left the session as it was; it may be running. Between
    LAUNCHED and ENDED, SEEN says what the conversation itself showed, WARNED what people should
    know about a live run.
    """

    LAUNCHED = "launched"
    FAILED = "failed"
    REFUSED = "refused"
    ENDED = "ended"
    SEEN = "seen"
    WARNED = "warned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event.

    LAUNCHED has `report`, ENDED has `status`, FAILED and REFUSED have `code` and `message`, SEEN
    has `seen`, and SEEN and WARNED have `warnings`.
    `session` of FAILED is the one whose record says so, empty where the launch came to none.
    """

    kind: EventKind
    session: str
    at: str
    report: LaunchReport | None = None
    status: ExitStatus | None = None
    code: str = ""
    message: str = ""
    seen: tuple[Sighting, ...] = ()
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the event as JSON values, absent fields left out."""
        values: dict[str, Any] = {
            "event": self.kind.value,
            "session": self.session,
            "at": self.at,
        }
        if self.report is not None:
            values["report"] = self.report.as_json()
        if self.status is not None:
            values["exit_code"] = self.status.code
            values["exit_signal"] = self.status.signal
            values["lost"] = self.status.lost
            values["survivors"] = self.status.survivors
        if self.code:
            values |= {"code": self.code, "message": self.message}
        if self.seen:
            values["seen"] = [asdict(one) for one in self.seen]
        if self.warnings:
            values["warnings"] = list(self.warnings)
        return values


def event_of(notice: Notice) -> Event:
    """Return the event of a notice, of now."""
    return Event(
        kind=EventKind.SEEN if notice.seen else EventKind.WARNED,
        session=notice.session,
        at=timestamp(),
        seen=notice.seen,
        warnings=notice.warnings,
    )


class Watch:
    """The events since it was made, in order: an iterator for threads and for asyncio alike.

    It ends when it or its supervisor is closed.
    """

    def __init__(self, leave: Callable[[Watch], None]) -> None:
        self._events: SimpleQueue[Event | None] = SimpleQueue()  # None: the end, and it stays there
        self._ended = False
        self._waiters: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._leave = leave

    def next(self, deadline: float | None = None) -> Event | None:
        """Return the next event; None when the watch ended or `deadline` seconds passed."""
        limit = None if deadline is None else max(0.0, seconds("deadline", deadline))
        with contextlib.suppress(Empty):
            return self._taken(limit)
        return None

    def close(self) -> None:
        """End the watch; events that came before can still be read."""
        self._leave(self)
        self.put(None)

    def put(self, event: Event | None) -> None:
        """Add an event, or with None end the watch."""
        if self._ended:
            return
        self._ended = event is None
        self._events.put(event)
        with contextlib.suppress(IndexError):
            while True:
                loop, waiter = self._waiters.popleft()
                with contextlib.suppress(RuntimeError):  # that loop is closed
                    loop.call_soon_threadsafe(_wake, waiter)

    def _taken(self, deadline: float | None) -> Event | None:
        """Take the next event, or see the end; raise Empty after `deadline` seconds."""
        event = self._events.get(timeout=deadline)
        if event is None:
            self._events.put(None)  # for whoever else asks
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        event = self.next()
        if event is None:
            raise StopIteration
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        loop = asyncio.get_running_loop()
        while True:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append((loop, waiter))
            with contextlib.suppress(Empty):  # looked at last: what comes from here on wakes us
                event = self._taken(0)
                if event is None:
                    raise StopAsyncIteration
                return event
            await waiter


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Announcer:
    """Hands each event to every watch."""

    def __init__(self) -> None:
        self._watches: set[weakref.ref[Watch]] = set()
        self._closed = False

    def watch(self) -> Watch:
        """Return a new watch; one of a closed announcer has ended already."""
        watch = Watch(self._forget)
        self._watches.add(weakref.ref(watch, self._watches.discard))
        if self._closed:
            watch.close()
        return watch

    def tell(self, kind: EventKind, session: str, **details: Any) -> None:  # noqa: ANN401
        """Make an event of now and hand it to every watch."""
        self._put(Event(kind=kind, session=session, at=timestamp(), **details))

    def notice(self, notice: Notice) -> None:
        """Hand a notice about a live run to every watch, as an event of now."""
        self._put(event_of(notice))

    def close(self) -> None:
        """End every watch."""
        self._closed = True
        self._put(None)
        self._watches.clear()

    def _put(self, event: Event | None) -> None:
        for reference in tuple(self._watches):
            watch = reference()
            if watch is not None:
                watch.put(event)

    def _forget(self, watch: Watch) -> None:
        self._watches.discard(weakref.ref(watch))
