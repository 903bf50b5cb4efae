"""Share the Hub between callers: each scope has a few threads, each credential so much room."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakValueDictionary

from amux.hub.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from amux.hub.values import Scope

PER_SCOPE: Final = 6
PER_CREDENTIAL: Final = 3
MOST_CALLS: Final = 1024
MOST_BYTES: Final = 32 * 1024 * 1024
Result = TypeVar("Result")


class _Share:
    """What the calls of one credential hold together."""

    calls = 0
    held = 0


class Shares:
    """Bound the calls under way with one credential, and the bytes that they hold."""

    def __init__(self, *, calls: int = MOST_CALLS, held: int = MOST_BYTES) -> None:
        self._calls = calls
        self._held = held
        self._shares: WeakValueDictionary[str, _Share] = WeakValueDictionary()

    @contextlib.contextmanager
    def call(self, credential: str) -> Iterator[Callable[[int], None]]:
        """Count a call for the length of the block, which tells what it holds.

        Entering, and telling, raise Unavailable when it is too much.
        """
        share = self._shares.get(credential)
        if share is None:
            share = self._shares[credential] = _Share()
        if share.calls >= self._calls:
            raise Unavailable("too many calls at once with one credential; try again later")
        mine = 0

        def hold(size: int) -> None:
            nonlocal mine
            mine += size
            share.held += size
            if share.held > self._held:
                raise Unavailable("too much at once with one credential; try again later")

        share.calls += 1
        try:
            yield hold
        finally:
            share.calls -= 1
            share.held -= mine


class Workers:
    """Run what may block in threads, fairly between scopes and between credentials."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._stopping = False
        self._turns: WeakValueDictionary[Scope | str, asyncio.Semaphore] = WeakValueDictionary()

    async def run(
        self,
        job: Callable[[], Result],
        *,
        scope: Scope,
        credential: str,
        gone: Callable[[], bool] = lambda: False,
    ) -> Result:
        """Return the job's result once its credential and its scope have a turn for it.

        Raises Unavailable for what has not begun when the Hub stops, or when `gone` says that
        nobody waits for it any more.
        """

        def wanted() -> Result:
            if gone():
                raise Unavailable("the caller is gone")
            return job()

        async with self._turn(credential, PER_CREDENTIAL), self._turn(scope, PER_SCOPE):
            return await self.run_now(wanted)

    async def run_now(self, job: Callable[[], Result]) -> Result:
        """Return the result of a job that belongs to no scope."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._begin, job)

    def stop(self) -> None:
        """Finish what has begun and refuse the rest."""
        self._stopping = True

    def _begin(self, job: Callable[[], Result]) -> Result:
        if self._stopping:
            raise Unavailable("the Hub is stopping")
        return job()

    def _turn(self, key: Scope | str, each: int) -> asyncio.Semaphore:
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = asyncio.Semaphore(each)
        return turn
