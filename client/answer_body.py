"""The body of a server's answer, read within a bound: its length is somebody else's choice.

    9 tokens asked for     at most 1 MiB + 9 * 4 KiB, after decompression

A token takes 100 to 500 bytes of an engine's answer, its log-prob and the event around it included: no honest answer
comes near. What is longer is refused while it is read: never more than the bound, and a piece of it, is in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..system.errors import MemAgentError

_BASE, _PER_TOKEN = 2**20, 2**12
_ERROR_BYTES = 2**12
"""Of the body of an error, whose beginning is shown."""


class BodyTooLong(MemAgentError, ValueError):
    """An answer that no request of this pack asks for."""


def most_bytes(tokens: int) -> int:
    """What an answer of at most so many tokens may have."""
    return _BASE + _PER_TOKEN * tokens


async def whole_body(parts: AsyncIterator[bytes], most: int) -> bytes:
    """Raises BodyTooLong."""
    body = bytearray()
    async for part in parts:
        body += part
        if len(body) > most:
            raise BodyTooLong(f"the answer is longer than {most} bytes, far more than was asked for")
    return bytes(body)


async def beginning(parts: AsyncIterator[bytes]) -> bytes:
    """Of an error's body, whatever its length."""
    body = bytearray()
    async for part in parts:
        body += part
        if len(body) >= _ERROR_BYTES:
            break
    return bytes(body[:_ERROR_BYTES])
