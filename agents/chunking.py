"""A document's token ids cut into consecutive chunks.

Invariants: the chunks joined give the document back (nothing is re-encoded), except that a document longer than
``chunk_tokens * max_chunks`` loses its centre: as many tokens are kept from its start as from its end, and the number
dropped is reported. Chunks are views: those of an ``array`` that loses nothing take no memory of their own.

Example (chunks of 2 tokens, at most 2 of them)::

    split_chunks([1, 2, 3, 4, 5], 2, 9) -> chunks [1 2] [3 4] [5], dropped 0
    split_chunks([1, 2, 3, 4, 5], 2, 2) -> chunks [1 2] [4 5],     dropped 1
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass


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
    """Cut ``document`` into slices of ``chunk_tokens`` ids; centre truncation above ``max_chunks`` slices, if any."""
    room = len(document) if max_chunks is None else chunk_tokens * max_chunks
    dropped = max(0, len(document) - room)
    kept = document if isinstance(document, array) else array("I", document)
    if dropped:
        head = (room + 1) // 2
        kept = kept[:head] + kept[len(document) - (room - head) :]
    view = memoryview(kept)
    return Chunks(tuple(view[i : i + chunk_tokens] for i in range(0, len(kept), chunk_tokens)), dropped)
