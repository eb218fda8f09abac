"""Coroutines side by side, or watched while they run; none is left running."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
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


async def watched(work: Coroutine[Any, Any, T], look: Callable[[], Awaitable[None]], every_s: float) -> T:
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
