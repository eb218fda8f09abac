"""A semaphore whose next slot goes to the heaviest of those that wait, and to the oldest among equals.

Invariants, with any number of waiters cancelled at any moment:
- at most ``slots`` are inside, and while anybody waits exactly that many are;
- a slot that was handed to a waiter which is cancelled goes on to the next one.

Without aging a light waiter waits as long as heavier ones keep coming. It is for callers among whom that ends: those
of a rollout or of a sweep are finitely many, and each of their next requests is lighter than the one before.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count


class PriorityGate:
    """For tasks of one event loop."""

    def __init__(self, slots: int) -> None:
        assert slots > 0, slots
        self._free = slots
        self._numbers = count()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def slot(self, weight: float = 0.0) -> AsyncIterator[None]:
        """One slot for as long as the block lasts."""
        await self._acquire(weight)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, weight: float) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-weight, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had been handed the slot, and was cancelled before it ran
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.cancelled():
                turn.set_result(None)
                return
        self._free += 1
