"""Documents tokenised once, off the event loop, and shared by all siblings of a group.

A 900K-token document takes seconds to tokenise; a group of 16 siblings asks for it at the same moment. The first asks
a worker thread (``Vocabulary.encode_text`` releases the GIL), the others wait for the same result. Token ids are kept
as 4-byte integers, least recently used documents leave first.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

Ids = array
Encode = Callable[[str], Sequence[int]]

_ENTRY = 128
"""Tokens whose memory a cached document takes besides its ids: key, array, their places; rather more than less."""


class DocumentCache:
    """``await get(text)`` gives the ids of ``text``; equal texts are encoded once while they stay cached.

    Safe to use from several event loops. ``encoded`` counts the encodings really done.
    """

    def __init__(self, encode: Encode, max_tokens: int = 32 * 2**20) -> None:
        """``max_tokens``: of all that are kept, ``_ENTRY`` more for each; the newest is kept in any case."""
        self._encode = encode
        self._max_tokens = max_tokens
        self._kept: OrderedDict[bytes, Ids] = OrderedDict()
        self._held = 0
        self._pending: dict[bytes, Future[Ids]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenise")
        self.encoded = 0

    async def get(self, text: str) -> Ids:
        key = hashlib.sha256(text.encode()).digest()
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            pending = self._pending.get(key)
            if pending is None:
                pending = self._pending[key] = self._pool.submit(self._to_ids, key, text)
        # One sibling that is cancelled must not cancel the encoding its siblings wait for.
        return await asyncio.shield(asyncio.wrap_future(pending))

    def _to_ids(self, key: bytes, text: str) -> Ids:
        try:
            self.encoded += 1
            ids = array("I", self._encode(text))
            with self._lock:
                self._keep(key, ids)
            return ids
        finally:
            with self._lock:
                del self._pending[key]  # after an error the next one may try again

    def _keep(self, key: bytes, ids: Ids) -> None:
        self._kept[key] = ids
        self._held += len(ids) + _ENTRY
        while self._held > self._max_tokens and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._held -= len(oldest) + _ENTRY
