"""The text of files that clients send, found by processes that can be stopped (``data.document_process``).

Invariants:
- the endpoint's loop and its threads parse nothing but little plain texts;
- a process ends with whoever waits for it: at its time limit, when the client leaves, when the server stops;
- at most as many run as there are cores; the others wait for their turn, which is not counted as their time.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from ..data.document_formats import Document, DocumentError, is_plain, read_document
from ..data.document_process import MEMORY, Allowed, Reading
from ..system.process_environment import without_secrets
from .request_error import RequestError

_LITTLE = 2**16


def needs_process(name: str, content: bytes) -> bool:
    return len(content) > _LITTLE or not is_plain(name, content)


class DocumentTexts:
    def __init__(self, seconds: float, memory: int = MEMORY) -> None:
        """``seconds`` for one file, 0: no limit; ``memory``: bytes that its process may take."""
        self._allowed = Allowed(seconds, memory, "SERVE_PARSE_TIMEOUT", "split it, or send it as plain text")
        self._places = asyncio.Semaphore(len(os.sched_getaffinity(0)))

    async def text(self, name: str, content: bytes) -> str:
        """Of a text, PDF, HTML or Word file. Raises RequestError for what is none, or gives no text."""
        try:
            if not needs_process(name, content):
                return read_document(name, content).text
            async with self._places:
                return (await self._parsed(name, content)).text
        except DocumentError as error:
            raise RequestError(400, str(error), code="unreadable_document") from None

    async def _parsed(self, name: str, content: bytes) -> Document:
        """Raises DocumentError."""
        reading = Reading(name, content, self._allowed)
        with reading.files() as (asked, said):
            await asyncio.to_thread(reading.ask, asked)
            process = await asyncio.create_subprocess_exec(
                *reading.command, stdin=asked, stdout=said, stderr=asyncio.subprocess.DEVNULL,
                env=without_secrets(os.environ),
            )
            try:
                async with asyncio.timeout(reading.allowed.seconds or None):
                    code = await process.wait()
            except TimeoutError:
                raise reading.too_slow() from None
            finally:
                with suppress(ProcessLookupError):  # it has ended
                    process.kill()
                await process.wait()
            return await asyncio.to_thread(reading.document, said, code)
