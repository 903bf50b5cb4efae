"""Look at something again and again until it has happened: one thread for all that is awaited."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_SECONDS: Final = 2.0
LAST_SECONDS: Final = 30.0
"""Between two looks: twice as long each time, up to this."""


@dataclass(slots=True)
class _Awaited:
    """One look, when it is due, and how long the pause before it was."""

    look: Callable[[], bool]
    due: float
    pause: float


class Lookout:
    """Calls each look until it returns True, or until it is let go."""

    def __init__(self, first: float = FIRST_SECONDS, last: float = LAST_SECONDS) -> None:
        self._first = first
        self._last = last
        # Without a lock, since a run that ends lets go; see amux.launcher.process.signal_safe.
        self._awaited: dict[int, _Awaited] = {}
        self._added: SimpleQueue[None] = SimpleQueue()
        self._idle = deque((threading.Thread(target=self._run, name="amux-lookout", daemon=True),))
        self._keys = itertools.count()

    def keep(self, look: Callable[[], bool]) -> Callable[[], None]:
        """Call `look`, which must not raise, from now on; return what lets it go."""
        key = next(self._keys)
        self._awaited[key] = _Awaited(look, time.monotonic() + self._first, self._first)
        self._added.put(None)
        with contextlib.suppress(IndexError):
            self._idle.pop().start()
        return lambda: self._let_go(key)

    def _let_go(self, key: int) -> None:
        self._awaited.pop(key, None)

    def _run(self) -> None:
        while True:
            pause = self._look()
            with contextlib.suppress(Empty):
                self._added.get(timeout=pause)

    def _look(self) -> float | None:
        """Take each look that is due; return the seconds to the next one, None without any."""
        for key, one in tuple(self._awaited.items()):
            if one.due > time.monotonic() or key not in self._awaited:
                continue
            if one.look():
                self._let_go(key)
            one.pause = min(2 * one.pause, self._last)
            one.due = time.monotonic() + one.pause
        due = min((one.due for one in tuple(self._awaited.values())), default=None)
        return None if due is None else max(0.0, due - time.monotonic())


LOOKOUT: Final = Lookout()
