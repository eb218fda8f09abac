"""Coroutines side by side, watched while they run, or one after the other by weight; none is left running.

``PriorityGate`` is a semaphore whose next slot goes to the heaviest of those that wait, and to the oldest among
equals. Its invariants, with any number of waiters cancelled at any moment:

- at most ``slots`` are inside, and while anybody waits exactly that many are;
- a slot that was handed to a waiter which is cancelled goes on to the next one.

There is no aging: a light waiter waits as long as heavier ones keep coming. That is fine here: a rollout or an
evaluation has a fixed number of callers, and each caller's next request is lighter than its last.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")


async def gather_or_cancel(*coroutines: Coroutine[Any, Any, Any]) -> list[Any]:
    """All results in order; the first failure is raised at once, after the others were cancelled and have ended."""
    tasks = [asyncio.ensure_future(c) for c in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def watched(work: Awaitable[T], look: Callable[[], Awaitable[None]], every_s: float) -> T:
    """The result of ``work``. ``look`` is called every ``every_s`` seconds until then; if it raises
    while ``work`` still runs, ``work`` is cancelled and so does this."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=every_s))[0]:
            try:
                await look()
            except Exception:
                if not task.done():
                    raise
        return await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class PriorityGate:
    """For tasks of one event loop."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._numbers = count()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def slot(self, weight: float = 0.0) -> AsyncIterator[None]:
        """One slot for as long as the block lasts."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-weight, next(self._numbers), turn))
        self._hand_out()
        try:
            await turn
            yield
        finally:
            self._free += not turn.cancelled()  # a slot may have been handed to a waiter that is cancelled now
            self._hand_out()

    def _hand_out(self) -> None:
        while self._free and self._waiting:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.cancelled():
                self._free -= 1
                turn.set_result(None)
