"""Bodies of requests: what cannot be read is the client's error, and it has to come in time.

aiohttp bounds their sizes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

from .request_error import RequestError


@asynccontextmanager
async def within(seconds: float, status: int, what: str) -> AsyncIterator[None]:
    """Raises RequestError of that status where its block takes longer; 0 is no limit."""
    try:
        async with asyncio.timeout(seconds or None):
            yield
    except TimeoutError:
        raise RequestError(status, f"{what} within {seconds:g} s (SERVE_TIMEOUT)", code="timeout") from None


async def json_body(request: web.Request, seconds: float) -> Any:
    """Raises RequestError."""
    check_kind(request, "application/json")  # which a page cannot send without being asked for its origin
    try:
        async with within(seconds, 408, "the body did not come"):
            content = await request.read()
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise RequestError(400, f"the body is not JSON: {error}") from None
    except web.RequestPayloadError:
        raise RequestError(400, "the body cannot be read; is it what Content-Encoding says?") from None


def check_kind(request: web.Request, expected: str) -> None:
    """Raises RequestError."""
    if request.content_type != expected:
        raise RequestError(415, f"Content-Type is {request.content_type}; expected {expected}")
