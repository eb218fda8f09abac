"""The file in a form, as clients upload it (``multipart/form-data``).

Invariants:
- of a form its file and its purpose are held, anything else is read past;
- texts are UTF-8, whatever encoding the client names: some of Python's take for ever, and would in the event loop;
- a form that is none, or has too much of anything, is the client's error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import BodyPartReader, web
from aiohttp.http import HttpProcessingError

from ..system.whole_text import whole
from .bodies import check_kind, within
from .request_error import RequestError

_PARTS = 64
"""Of a form, the file among them: each has a head, which is read in the loop."""
_PURPOSE = 256
"""Bytes; OpenAI's are words."""
_CHUNK = 2**18


async def form_file(request: web.Request, seconds: float) -> tuple[str, str, bytes]:
    """Name, purpose and content of the file in a form. Raises RequestError, and web.HTTPRequestEntityTooLarge."""
    check_kind(request, "multipart/form-data")
    try:
        async with within(seconds, 408, "the body did not come"):
            return await _form_file(request)
    except (ValueError, RuntimeError, web.RequestPayloadError, HttpProcessingError) as error:
        raise RequestError(400, f"the body is no form: {' '.join(str(error).split()):.200}") from None


async def _form_file(request: web.Request) -> tuple[str, str, bytes]:
    """Of several parts with the same name the first counts."""
    wanted = {"file": request.client_max_size, "purpose": _PURPOSE}
    filename, content, purpose = "", bytearray(), "user_data"
    async for part in _parts(request):
        if part.name is None:
            raise ValueError("a part has no name")
        held = await _content(request, part, wanted.pop(part.name, None))
        if part.name == "file" and held is not None:
            filename, content = part.filename or "", held
        elif part.name == "purpose" and held is not None and not part.filename:
            purpose = held.decode("utf-8", "replace")
    if not filename:
        raise RequestError(400, "file: expected a file", param="file")
    return whole(filename), purpose, await asyncio.to_thread(bytes, content)


async def _content(request: web.Request, part: BodyPartReader, most: int | None) -> bytearray | None:
    """Of a part that is read past, nothing."""
    content = bytearray()
    while chunk := await part.read_chunk(_CHUNK):
        _check_size(request)
        if most is None:
            continue
        async for decoded in part.decode_iter(chunk):
            content += decoded
        if len(content) > most:
            raise ValueError(f"{part.name}: more than {most} bytes")
    return None if most is None else content


async def _parts(request: web.Request) -> AsyncIterator[BodyPartReader]:
    reader = await request.multipart()
    for _ in range(_PARTS):
        part = await reader.next()
        _check_size(request)
        if part is None:
            return
        if not isinstance(part, BodyPartReader):
            raise ValueError("a form in a form")
        yield part
    if await reader.next() is not None:
        raise ValueError(f"more than {_PARTS} parts")


def _check_size(request: web.Request) -> None:
    if request.content.total_bytes > request.client_max_size:
        raise web.HTTPRequestEntityTooLarge(request.client_max_size)
