"""Share the Hub between callers: a scope and a credential each have so many turns at a time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakValueDictionary

from hub.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from concurrent.futures import Executor

    from hub.values import Scope

PER_SCOPE: Final = 6
PER_CREDENTIAL: Final = 128
WAITING: Final = 1024
Result = TypeVar("Result")


class _Turn(asyncio.Semaphore):
    """The turns of one scope or credential, and how many calls wait for one."""

    waiting = 0


class Turns:
    """Give out turns by key; a key that nobody uses is forgotten."""

    def __init__(self, each: int, *, waiting: int | None = None) -> None:
        self._each = each
        self._waiting = waiting
        self._turns: WeakValueDictionary[object, _Turn] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def turn(self, key: object) -> AsyncIterator[None]:
        """Wait for a turn and hold it. Raises Unavailable when too many wait already."""
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = _Turn(self._each)
        if self._waiting is not None and turn.waiting >= self._waiting:
            raise Unavailable("too many calls at once with one credential; try again later")
        turn.waiting += 1
        try:
            await turn.acquire()
        finally:
            turn.waiting -= 1
        try:
            yield
        finally:
            turn.release()


class Workers:
    """Run what may block in threads, fairly between scopes."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._scopes = Turns(PER_SCOPE)

    async def run(self, job: Callable[[], Result], *, scope: Scope | None = None) -> Result:
        """Return the job's result; a job of a scope waits for one of the scope's turns."""
        if scope is None:
            return await self._submit(job)
        async with self._scopes.turn(scope):
            return await self._submit(job)

    async def _submit(self, job: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, job)
