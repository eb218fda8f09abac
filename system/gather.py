"""Coroutines side by side, none of them left running."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def gather_or_cancel(*coroutines: Coroutine[Any, Any, Any]) -> list[Any]:
    """All results in order; the first failure is raised at once, after the others were cancelled and have ended."""
    tasks = [asyncio.ensure_future(c) for c in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
