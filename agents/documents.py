"""Documents tokenised once, off the event loop, and shared by all siblings of a group.

A 900K-token document takes seconds to tokenise; a group of 16 siblings asks for it at the same moment. The first asks
a worker thread (``Vocabulary.encode_text`` releases the GIL), the others wait for the same result. Token ids are kept
as 4-byte integers, least recently used documents leave first.

A tokenizer needs some hundred bytes per token while it works, so a long text is encoded piece by piece. Where a text
may be cut is asked of the tokenizer itself: between words or sentences, at a place where the two sides encode to the
very ids that they have together::

    encode("... the red key") == encode("... the red") + encode(" key")      a cut behind "red"

A piece without such a place grows until one comes; a tokenizer that has none (one that marks the start of every text)
gets the text whole. So pieces joined are the ids of the whole text.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

Ids = array
Encode = Callable[[str], Sequence[int]]

PIECE = 2**18
"""Characters of a piece, at least."""
_WINDOW = 256
"""Characters on each side of a cut that the tokenizer is asked about; no word of a vocabulary is nearly that long."""
_MAY_CUT = re.compile(r"(?<=\w)(?= \w)|(?<=[。！？])(?=\w)")


class DocumentCache:
    """``await get(text)`` gives the ids of ``text``; equal texts are encoded once while they stay cached.

    Safe to use from several event loops. ``encoded`` counts the encodings really done.
    """

    def __init__(self, encode: Encode, max_tokens: int = 32 * 2**20) -> None:
        self._encode = encode
        self._max_tokens = max_tokens
        self._entries: OrderedDict[bytes, Future[Ids]] = OrderedDict()
        self._sizes: dict[bytes, int] = {}
        self._cached = 0
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenise")
        self.encoded = 0

    async def get(self, text: str) -> Ids:
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = self._pool.submit(self._to_ids, text)
        self._entries.move_to_end(key)
        # One sibling that is cancelled must not cancel the encoding its siblings wait for.
        try:
            ids = await asyncio.shield(asyncio.wrap_future(entry))
        except Exception:
            self._entries.pop(key, None)  # the next one may try again
            raise
        if key not in self._sizes and key in self._entries:
            self._sizes[key] = len(ids)
            self._cached += len(ids)
            self._evict()
        return ids

    def _to_ids(self, text: str) -> Ids:
        self.encoded += 1
        return encode_in_pieces(self._encode, text)

    def _evict(self) -> None:
        while self._cached > self._max_tokens and len(self._sizes) > 1:
            oldest = next(key for key in self._entries if key in self._sizes)
            del self._entries[oldest]
            self._cached -= self._sizes.pop(oldest)


def encode_in_pieces(encode: Encode, text: str, piece: int = PIECE) -> Ids:
    """The ids of ``text``, encoded in pieces of at least ``piece`` characters."""
    ids = array("I")
    start = 0
    while start < len(text):
        end = _cut(encode, text, start + piece)
        ids.extend(encode(text[start:end]))
        start = end
    return ids


def _cut(encode: Encode, text: str, earliest: int, tries: int = 64) -> int:
    """The first place from ``earliest`` on where the text may be cut; its end where the tokenizer shows none."""
    for _, place in zip(range(tries), _MAY_CUT.finditer(text, earliest), strict=False):
        at = place.start()
        left, right = text[max(0, at - _WINDOW) : at], text[at : at + _WINDOW]
        if [*encode(left), *encode(right)] == list(encode(left + right)):
            return at
    return len(text)
