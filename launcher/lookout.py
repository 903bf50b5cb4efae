"""Look at something again and again until it has happened: one thread for all that is awaited."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

FIRST_SECONDS: Final = 2.0
LAST_SECONDS: Final = 30.0
"""Between two looks: twice as long each time, up to this."""


class Lookout:
    """Calls each look until it returns True, or until it is let go."""

    def __init__(self, first: float = FIRST_SECONDS, last: float = LAST_SECONDS) -> None:
        self._first = first
        self._last = last
        self._changed = threading.Condition()
        self._due: dict[Hashable, tuple[float, float, Callable[[], bool]]] = {}
        self._thread: threading.Thread | None = None
        self._keys = itertools.count()

    def keep(self, look: Callable[[], bool]) -> Callable[[], None]:
        """Call `look`, which must not raise, from now on; return what lets it go."""
        key = next(self._keys)
        with self._changed:
            self._due[key] = (time.monotonic() + self._first, self._first, look)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="amux-lookout", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return lambda: self._let_go(key)

    def _let_go(self, key: Hashable) -> None:
        with self._changed:
            self._due.pop(key, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._due:
                    self._changed.wait()
                key, (due, pause, look) = min(self._due.items(), key=lambda item: item[1][0])
                left = due - time.monotonic()
                if left > 0:
                    del look  # what is let go meanwhile is not to be held here
                    self._changed.wait(left)
                    continue
            happened = look()
            del look
            with self._changed:
                if happened:
                    self._due.pop(key, None)
                elif key in self._due:
                    pause = min(2 * pause, self._last)
                    self._due[key] = (time.monotonic() + pause, pause, self._due[key][2])


LOOKOUT: Final = Lookout()
