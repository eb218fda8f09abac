"""Steps as server-sent events: one for each delta, an error as the last one, a comment where nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import orjson

from .chat_reply import ChatReply
from .request_error import error_of
from .steps import Failed, Step

DONE = b"data: [DONE]\n\n"


async def with_pauses(steps: AsyncGenerator[Step, None], pause_s: float) -> AsyncGenerator[Step | None, None]:
    """The steps, and None whenever none came for so long."""
    following: Sequence[asyncio.Task[Step]] = ()
    try:
        while True:
            following = [asyncio.ensure_future(_next(steps))]
            while not (await asyncio.wait(following, timeout=pause_s))[0]:
                yield None
            try:
                yield following[0].result()
            except StopAsyncIteration:
                return
    finally:
        for task in following:
            task.cancel()
            await asyncio.wait({task})


async def _next(steps: AsyncGenerator[Step, None]) -> Step:
    return await anext(steps)


def events(step: Step | None, reply: ChatReply) -> bytes:
    if step is None:
        return b": reading\n\n"
    if isinstance(step, Failed):
        return event(error_of(step).body)
    return b"".join(event(reply.chunk(delta)) for delta in reply.deltas(step))


def event(content: Any) -> bytes:
    return b"data: " + orjson.dumps(content) + b"\n\n"
