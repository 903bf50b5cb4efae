"""Let no scope take all worker threads: each has a few turns at a time, the rest waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from hub.values import Scope

PER_SCOPE: Final = 6
Result = TypeVar("Result")


class Workers:
    """Run what may block in threads, fairly between scopes."""

    def __init__(self, executor: Executor, *, per_scope: int = PER_SCOPE) -> None:
        self._executor = executor
        self._per_scope = per_scope
        self._turns: WeakValueDictionary[Scope, asyncio.Semaphore] = WeakValueDictionary()

    async def run(self, job: Callable[[], Result], *, scope: Scope | None = None) -> Result:
        """Return the job's result; a job of a scope waits for one of the scope's turns."""
        if scope is None:
            return await self._submit(job)
        turn = self._turns.get(scope)
        if turn is None:
            turn = self._turns[scope] = asyncio.Semaphore(self._per_scope)
        async with turn:
            return await self._submit(job)

    async def _submit(self, job: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, job)
