"""An engine that answers oddly, on order: a middleware of vLLM's own server, in front of its generation requests.

An order is a file in the folder that ``ORDERS`` names, ``garbage.0`` for instance. The first request that takes it
away is answered so; all others are answered by vLLM. Engines of a run share the folder, and no order is carried out
twice.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ORDERS = "MEM_AGENT_DRILL_ORDERS"
GENERATE = "/inference/v1/generate"
SLOW_S = 3.0


class OddAnswers:
    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self._orders = Path(os.environ[ORDERS])

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Callable[..., Awaitable[None]]) -> None:
        order = taken(self._orders) if scope["type"] == "http" and scope["path"] == GENERATE else ""
        if order == "slow":
            await asyncio.sleep(SLOW_S)
        if order == "garbage":
            await _answer(send, 200, b"<html>It works!</html>")
        elif order == "error":
            await _answer(send, 500, b'{"error": "drill"}')
        elif order == "cut":
            await _answer(send, 200, b'{"choices": [', missing=100)
        else:
            await self._app(scope, receive, send)


def taken(orders: Path) -> str:
    """The kind of the next order, which nobody else carries out; empty: there is none."""
    for file in sorted(orders.iterdir()):
        try:
            file.unlink()
        except FileNotFoundError:  # another engine's
            continue
        return file.name.partition(".")[0]
    return ""


async def _answer(send: Callable[..., Awaitable[None]], status: int, body: bytes, missing: int = 0) -> None:
    """With ``missing`` bytes the connection breaks off amid the body."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body) + missing).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
