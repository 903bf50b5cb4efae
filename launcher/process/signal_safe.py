"""What threads wait for and what they share, without a lock that a signal handler could meet.

A handler runs on the main thread, between two steps of whatever it interrupts. Had that taken a
lock, another thread would wait for the handler, and `close()` in the handler for that thread. See
docs/decisions/0011-no-lock-at-the-end.md.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Moment:
    """Something that comes once, and that any thread may wait for."""

    def __init__(self) -> None:
        self.come = False
        self._waiters: deque[threading.Lock] = deque()

    def tell(self) -> None:
        """Say that it has come."""
        self.come = True
        with contextlib.suppress(IndexError):
            while True:
                self._waiters.popleft().release()

    def wait(self, deadline: float | None = None) -> bool:
        """Wait at most `deadline` seconds; say whether it has come."""
        # A lock for each waiter: nobody but `tell` ever has to take it away.
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        if not self.come:  # looked at last: what comes from here on finds the waiter
            waiter.acquire(timeout=-1 if deadline is None else max(0.0, deadline))
        with contextlib.suppress(ValueError):
            self._waiters.remove(waiter)
        return self.come


class Lent:
    """Something that any thread may use, and that the last user closes once it is given up.

    Descriptors are reused, so nobody may write to a number that was closed meanwhile.
    """

    def __init__(self, close: Callable[[], object]) -> None:
        self.over = False
        self._closing = deque([close])
        self._users: deque[None] = deque()

    @contextlib.contextmanager
    def use(self) -> Iterator[bool]:
        """Say whether it is there; if so it stays for the length of the block."""
        self._users.append(None)
        try:
            yield not self.over
        finally:
            self._users.pop()
            self._close_unused()

    def close(self) -> None:
        """Give it up: now, or when its last user is done."""
        self.over = True
        self._close_unused()

    def _close_unused(self) -> None:
        if self.over and not self._users:
            with contextlib.suppress(IndexError):  # somebody else closes it
                close = self._closing.popleft()
                close()


class Alone:
    """Does one thing at a time, and on the main thread nothing: that waits for another to do it.

    An interrupted main thread leaves what it asked for to be done without it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def do(self, work: Callable[[], object]) -> None:
        """Do this while nothing else is done here; raise what it raises."""
        if threading.get_ident() != threading.main_thread().ident:
            with self._lock:
                work()
            return
        done = Moment()
        errors: list[Exception] = []

        def apart() -> None:
            try:
                with self._lock:
                    work()
            except Exception as error:  # noqa: BLE001  # raised again where it was asked for
                errors.append(error)
            finally:
                done.tell()

        threading.Thread(target=apart, name="amux-alone").start()
        done.wait()
        for error in errors:
            raise error
