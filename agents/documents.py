"""A document's token ids: made once for all siblings of a group, and cut into chunks.

A 900K-token document takes seconds to tokenise, and all siblings of a group ask for it at the same moment; a worker
thread does it for the first of them (``Vocabulary.encode_text`` releases the GIL).

Chunks joined give the document back, except that a document longer than ``chunk_tokens * max_chunks`` loses its
centre, and the number of dropped tokens is reported. Chunks of 2 tokens, at most 2 of them::

    split_chunks([1, 2, 3, 4, 5], 2, 9) -> chunks [1 2] [3 4] [5], dropped 0
    split_chunks([1, 2, 3, 4, 5], 2, 2) -> chunks [1 2] [4 5],     dropped 1

``whole_sentences=1`` ends a chunk behind the last sentence that it has room for (``Vocabulary.sentence_ends``). A
sentence longer than that is a chunk of its own, and only one longer than ``most_tokens`` is cut. Sentences that end
behind 1, 4 and 5 tokens, chunks of 4, 3 and 2 tokens, most_tokens 4::

    split_sentences([1, 2, 3, 4, 5], 4, 4, 9, [1, 4, 5]) -> chunks [1 2 3 4] [5]
    split_sentences([1, 2, 3, 4, 5], 3, 4, 9, [1, 4, 5]) -> chunks [1] [2 3 4] [5]
    split_sentences([1, 2, 3, 4, 5], 2, 4, 9, [1, 4, 5]) -> chunks [1] [2 3 4] [5]
"""

from __future__ import annotations

import asyncio
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

SENTENCE = re.compile(r".+?(?:[.!?]\s+|[。！？]\s*|\n\s*|\Z)", re.DOTALL)
"""A sentence, or a line, with the blanks behind it: all that is found, joined, is the text."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """Consecutive slices of a document, and how many of its tokens were left out."""

    chunks: tuple[Sequence[int], ...]
    dropped: int

    @property
    def tokens(self) -> int:
        """Document length in tokens, dropped ones included."""
        return sum(map(len, self.chunks)) + self.dropped


def split_chunks(document: Sequence[int], chunk_tokens: int, max_chunks: int | None) -> Chunks:
    """Cut ``document`` into slices of ``chunk_tokens`` ids, which are views; above ``max_chunks`` slices, if any, as
    many tokens are kept from its start as from its end."""
    room = len(document) if max_chunks is None else chunk_tokens * max_chunks
    dropped = max(0, len(document) - room)
    kept = document if isinstance(document, array) else array("I", document)
    if dropped:
        head = (room + 1) // 2
        kept = kept[:head] + kept[len(document) - (room - head) :]
    view = memoryview(kept)
    return Chunks(tuple(view[i : i + chunk_tokens] for i in range(0, len(kept), chunk_tokens)), dropped)


def split_sentences(
    document: Sequence[int], chunk_tokens: int, most_tokens: int, max_chunks: int | None, ends: Sequence[int]
) -> Chunks:
    """As ``split_chunks``, at the ends of sentences: positions in rising order, the last one the document's. Above
    ``max_chunks`` chunks, as many are kept from the start as from the end.

    Args:
        most_tokens: of a chunk that is one sentence longer than ``chunk_tokens``.
    """
    view = memoryview(document if isinstance(document, array) else array("I", document))
    chunks, start = list[Sequence[int]](), 0
    while start < len(view):
        first, last = bisect_right(ends, start), bisect_right(ends, start + chunk_tokens) - 1
        stop = min(ends[max(first, last)], start + most_tokens)
        chunks.append(view[start:stop])
        start = stop
    if max_chunks is not None and len(chunks) > max_chunks:
        head = (max_chunks + 1) // 2
        chunks = chunks[:head] + chunks[len(chunks) - (max_chunks - head) :]
    return Chunks(tuple(chunks), len(view) - sum(map(len, chunks)))


class DocumentCache:
    """``await get(text)`` gives the ids of ``text``, 4 bytes each; the ``most`` documents used last are encoded once.

    One worker thread encodes, so a second request for a document waits for the first and then finds its ids.
    Safe to use from several event loops.
    """

    def __init__(self, encode: Callable[[str], Sequence[int]], most: int = 32) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenise")
        self._ids = lru_cache(maxsize=most)(lambda text: array("I", encode(text)))

    async def get(self, text: str) -> array[int]:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._ids, text)
