"""A few threads for tool calls, started when they are needed."""

from __future__ import annotations

import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Task = Callable[[], None]

MOST = 8
WAITING = 256  # calls


class Workers:
    """Run tasks in at most `MOST` threads; a task must not raise."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tasks: list[Task] = []
        self._threads = 0
        self._idle = 0
        self._unfinished = 0

    def add(self, task: Task) -> bool:
        """Queue a task; return False where too many wait already."""
        with self._changed:
            if len(self._tasks) >= WAITING:
                return False
            self._tasks.append(task)
            self._unfinished += 1
            if self._idle >= len(self._tasks) or self._threads == MOST:
                self._changed.notify_all()
                return True
            self._threads += 1
        threading.Thread(target=self._work, daemon=True).start()
        return True

    def finish(self) -> None:
        """Wait until every task has run."""
        with self._changed:
            while self._unfinished:
                self._changed.wait()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                while not self._tasks:
                    self._changed.wait()
                self._idle -= 1
                task = self._tasks.pop(0)
            try:
                task()
            finally:
                with self._changed:
                    self._unfinished -= 1
                    self._changed.notify_all()
