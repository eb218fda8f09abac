"""The text of files that clients send, parsed by worker processes within a time limit.

A worker ends with whoever waits for it: at its time limit, or when the client leaves.
"""

from __future__ import annotations

import asyncio
import os
from multiprocessing import get_context

from pebble import ProcessPool

from ..data.documents import DocumentError, read_document
from .request_error import RequestError

PARSE_S = 60.0
"""Seconds for one file."""


class DocumentTexts:
    def __init__(self, seconds: float = PARSE_S) -> None:
        self._seconds = seconds
        self._pool = ProcessPool(len(os.sched_getaffinity(0)), context=get_context("forkserver"))

    async def text(self, name: str, content: bytes) -> str:
        """Of a text, PDF, HTML or Word file. Raises RequestError: it gives no text, or not in time."""
        future = self._pool.schedule(read_document, args=(name, content), timeout=self._seconds)
        try:
            return (await asyncio.wrap_future(future)).text
        except DocumentError as error:
            raise RequestError(400, str(error), code="unreadable_document") from None
        except TimeoutError:
            raise RequestError(400, f"{name}: was not read within {self._seconds:g} s; split it, or send plain text",
                               code="unreadable_document") from None

    async def close(self) -> None:
        self._pool.stop()
        await asyncio.to_thread(self._pool.join)
