"""The text of files that clients send, found by processes that can be stopped (``data.document_worker``).

Invariants:
- the endpoint's loop and its threads parse nothing but little plain texts;
- a process has none of the user's keys: what it reads may be written to take it over;
- a process ends with whoever waits for it: at its time limit, when the client leaves, when the server stops;
- at most as many run as there are cores; the others wait for their turn, which is not counted as their time.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO

from ..data import document_worker
from ..data.document_formats import DocumentError, read_document
from ..system.process_environment import without_secrets
from ..system.python_command import python_module
from .request_error import RequestError

MEMORY = 2**31
_MORE_S = 10
"""CPU seconds beyond the limit: whoever waits is to end a process first, for the reason that it can tell."""
_LITTLE = 2**16
_PAGES = (".html", ".htm", ".xhtml")
_SIGNS = (b"<", b"\0", b"%PDF-", b"PK\x03\x04")
"""Of what may be no plain text; wherever they stand, to be sure."""


class DocumentTexts:
    def __init__(self, seconds: float, memory: int = MEMORY) -> None:
        """``seconds`` for one file, 0: no limit; ``memory``: bytes that its process may take."""
        self._seconds, self._memory = seconds, memory
        self._places = asyncio.Semaphore(len(os.sched_getaffinity(0)))

    async def text(self, name: str, content: bytes) -> str:
        """Of a text, PDF, HTML or Word file. Raises RequestError for what is none, or gives no text."""
        if _is_little(name, content):
            try:
                return read_document(name, content).text
            except DocumentError as error:
                raise _refused(str(error)) from None
        async with self._places:
            answer = await self._parsed(name, content)
        if not answer:
            told = f"{name}: its parser failed, perhaps beyond its {self._memory // 2**20} MiB of memory"
            raise _refused(f"{told}; split it, or send it as plain text")
        if answer.startswith(document_worker.WHY):
            raise _refused(answer[1:].decode())
        return await asyncio.to_thread(_text_of, answer)

    async def _parsed(self, name: str, content: bytes) -> bytes:
        """What the process says; nothing where it did not end well."""
        limit = math.ceil(self._seconds) + _MORE_S if self._seconds else 0
        with ExitStack() as open_files:
            asked, said = (open_files.enter_context(_in_memory()) for _ in range(2))
            await asyncio.to_thread(_write, asked, name, content)
            command = python_module(document_worker.__name__, str(limit), str(self._memory))
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asked, stdout=said, stderr=asyncio.subprocess.DEVNULL, env=without_secrets(os.environ)
            )
            try:
                async with asyncio.timeout(self._seconds or None):
                    await process.wait()
            except TimeoutError:
                told = f"{name}: no text within {self._seconds:g} s (SERVE_PARSE_TIMEOUT)"
                raise _refused(f"{told}; send it as plain text") from None
            finally:
                with suppress(ProcessLookupError):  # it has ended
                    process.kill()
                await process.wait()
            return await asyncio.to_thread(_read, said) if process.returncode == 0 else b""


def _is_little(name: str, content: bytes) -> bool:
    """Plain UTF-8 of some pages, which takes no parser."""
    if len(content) > _LITTLE or name.lower().endswith(_PAGES) or any(sign in content for sign in _SIGNS):
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


@contextmanager
def _in_memory() -> Iterator[IO[bytes]]:
    with open(os.memfd_create("document"), "w+b") as file:
        yield file


def _write(file: IO[bytes], name: str, content: bytes) -> None:
    file.write(json.dumps(name).encode() + b"\n")
    file.write(content)
    file.seek(0)  # for the process as well: it has the same file


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _text_of(answer: bytes) -> str:
    return answer.removeprefix(document_worker.TEXT).decode()


def _refused(told: str) -> RequestError:
    return RequestError(400, told, code="unreadable_document")
