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

from ..system.bounded_json import has_more_values
from .request_error import RequestError

_INLINE = 2**16
"""Bytes of a body that are read where it came; a longer one is read in a thread."""
_VALUES = 2**18
"""Of a JSON body: 50 MB of memory if all are objects, and room for a document in texts of four tokens each."""
_LONGEST_KIND = 256
"""Characters of a Content-Type: brackets in it are read by recursion, and a boundary has 70 at most."""


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
        return _parsed(content) if len(content) < _INLINE else await asyncio.to_thread(_parsed, content)
    except orjson.JSONDecodeError as error:
        raise RequestError(400, f"the body is not JSON: {error}") from None
    except web.RequestPayloadError:
        raise RequestError(400, "the body cannot be read; is it what Content-Encoding says?") from None


def _parsed(content: bytes) -> Any:
    if has_more_values(content, _VALUES):
        raise RequestError(413, f"the body has more than {_VALUES} values; join texts that belong together")
    return orjson.loads(content)


def check_kind(request: web.Request, expected: str) -> None:
    """Raises RequestError."""
    if len(request.headers.get("Content-Type", "")) > _LONGEST_KIND:
        raise RequestError(415, f"Content-Type has more than {_LONGEST_KIND} characters; expected {expected}")
    if request.content_type != expected:
        raise RequestError(415, f"Content-Type is {request.content_type}; expected {expected}")
