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
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenise")
        self.encoded = 0

    async def get(self, text: str) -> Ids:
        entry = self._entries.get(text)
        if entry is None or entry.cancelled():
            entry = self._entries[text] = self._pool.submit(self._to_ids, text)
        self._entries.move_to_end(text)
        # One sibling that is cancelled must not cancel the encoding its siblings wait for.
        ids = await asyncio.shield(asyncio.wrap_future(entry))
        self._evict()
        return ids

    def _to_ids(self, text: str) -> Ids:
        self.encoded += 1
        return array("I", self._encode(text))

    def _evict(self) -> None:
        done = [(t, len(f.result())) for t, f in self._entries.items() if f.done() and not f.exception()]
        total = sum(size for _, size in done)
        for text, size in done[:-1]:
            if total <= self._max_tokens:
                break
            del self._entries[text]
            total -= size
