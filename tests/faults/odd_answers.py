"""An engine that answers oddly, on order: a middleware of vLLM's own server, in front of the requests in ``CALLS``.

An order is a file in the folder that ``ORDERS`` names, ``generate.garbage.0`` for instance. The first request of that
call which takes it away is answered so; all others are answered by vLLM. Engines of a run share the folder, and no
order is carried out twice.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ORDERS = "MEM_AGENT_DRILL_ORDERS"
GENERATE, RELOAD = "generate", "reload"
CALLS = {"/inference/v1/generate": GENERATE, "/collective_rpc": RELOAD}
"""By path, those that orders can be for: a turn, and new weights."""
SLOW_S = 3.0


class OddAnswers:
    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self._orders = Path(os.environ[ORDERS])

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Callable[..., Awaitable[None]]) -> None:
        call = CALLS.get(scope["path"]) if scope["type"] == "http" else None
        order = taken(self._orders, call) if call else ""
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


def taken(orders: Path, call: str) -> str:
    """The kind of the next order for this call, which nobody else carries out; empty: there is none."""
    for file in sorted(orders.glob(f"{call}.*")):
        try:
            file.unlink()
        except FileNotFoundError:  # another engine's
            continue
        return file.name.split(".")[1]
    return ""


async def _answer(send: Callable[..., Awaitable[None]], status: int, body: bytes, missing: int = 0) -> None:
    """With ``missing`` bytes the connection breaks off amid the body."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body) + missing).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
