"""Answers that are worth asking for once: kept by key, and shared while they are on their way.

    first asks for a     ------ request ------> kept
    second asks for a       waits for the same ^          third: at once

Invariants:
- at most ``most`` values are kept, those used last; a failure is not kept, so the next to ask tries again;
- a request goes on as long as anybody waits for it, whoever began it; when the last one gives up it is cancelled;
- several event loops may use one memo: they share what is kept, not what is on its way.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class _Flight(Generic[T]):
    task: asyncio.Task[T]
    waiting: int = 0


class Memo(Generic[T]):
    def __init__(self, most: int) -> None:
        assert most > 0, most
        self.most = most
        self.made = self.shared = 0
        """Values that were asked for, and times that one was had without asking."""
        self._kept: OrderedDict[Hashable, T] = OrderedDict()
        self._flying: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, _Flight[T]]]
        self._flying = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """The value of ``key``, made by ``make`` where nobody has; raises what that raises."""
        with self._lock:
            if key in self._kept:
                self.shared += 1
                self._kept.move_to_end(key)
                return self._kept[key]
            flying = self._flying.setdefault(asyncio.get_running_loop(), {})
        flight = flying.get(key)
        if flight is None:
            self.made += 1
            flight = flying[key] = _Flight(asyncio.ensure_future(self._made(key, make)))
            flight.task.add_done_callback(lambda task: _landed(flying, key, task))
        else:
            self.shared += 1
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                flight.task.cancel()
                _landed(flying, key, flight.task)

    async def _made(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        value = await make()
        with self._lock:
            self._kept[key] = value
            if len(self._kept) > self.most:
                self._kept.popitem(last=False)
        return value


def _landed(flying: dict[Hashable, _Flight[T]], key: Hashable, task: asyncio.Task[T]) -> None:
    if key in flying and flying[key].task is task:
        del flying[key]
    if task.done() and not task.cancelled():
        task.exception()  # seen, also where nobody waits any more
