"""Documents tokenised once, off the event loop, and shared by all siblings of a group.

A 900K-token document takes seconds to tokenise; a group of 16 siblings asks for it at the same moment. The first asks
a worker thread (the tokenizer releases the GIL), the others wait for the same result. Token ids are kept as 4-byte
integers, least recently used documents leave first.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

Ids = array


class DocumentCache:
    """``await get(text)`` gives the ids of ``text``; equal texts are encoded once while they stay cached.

    Safe to use from several event loops. ``encoded`` counts the encodings really done.
    """

    def __init__(self, encode: Callable[[str], list[int]], max_tokens: int = 32 * 2**20) -> None:
        self._encode = encode
        self._max_tokens = max_tokens
        self._entries: OrderedDict[str, Future[Ids]] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._cached = 0
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenise")
        self.encoded = 0

    async def get(self, text: str) -> Ids:
        entry = self._entries.get(text)
        if entry is None:
            entry = self._entries[text] = self._pool.submit(self._to_ids, text)
        self._entries.move_to_end(text)
        # One sibling that is cancelled must not cancel the encoding its siblings wait for.
        try:
            ids = await asyncio.shield(asyncio.wrap_future(entry))
        except Exception:
            self._entries.pop(text, None)  # the next one may try again
            raise
        if text not in self._sizes and text in self._entries:
            self._sizes[text] = len(ids)
            self._cached += len(ids)
            self._evict()
        return ids

    def _to_ids(self, text: str) -> Ids:
        self.encoded += 1
        return array("I", self._encode(text))

    def _evict(self) -> None:
        while self._cached > self._max_tokens and len(self._sizes) > 1:
            oldest = next(text for text in self._entries if text in self._sizes)
            del self._entries[oldest]
            self._cached -= self._sizes.pop(oldest)
