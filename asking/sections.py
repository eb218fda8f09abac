"""Where in a document its chunks stand, in characters: chunks are token ids, people want text.

Chunks are decoded and found again, each where the one before it ended. With a byte-level vocabulary that is exact: ids
decode to what was encoded, but for a character that a border cuts, which goes to the chunk that it begins in. Other
tokenizers change a text (blanks, letter case, characters that they do not know); there the end of a chunk is looked
for near the place where it should be, and where it is not found that place is taken.

    document "Ann has gold. Ben", chunks [Ann, has] [gold, .] [Ben]  ->  0-7, 7-13, 13-17

Invariant: sections are in order and without gaps, the first begins with the document and the last ends with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from .steps import Section

_BROKEN = "�"
_TAIL = 24
"""Characters of a chunk's end that are looked for."""
_NEAR = 64
"""Characters before and behind the place where they should be."""


def sections_of(
    document: str, chunks: Sequence[Sequence[int]], decode: Callable[[Sequence[int]], str]
) -> tuple[Section, ...]:
    """One for each chunk; ``chunks`` are all of the document."""
    if not chunks:
        return ()
    borders = [0]
    for chunk in chunks[:-1]:
        borders.append(_end(document, borders[-1], decode(chunk)))
    return tuple(Section(start, end) for start, end in pairwise([*borders, len(document)]))


def _end(document: str, start: int, text: str) -> int:
    """Where ``text``, which begins at ``start``, ends in the document."""
    text = text.lstrip(_BROKEN)  # of a character that the chunk before has
    whole = text.rstrip(_BROKEN)
    cut = len(whole) < len(text)
    if document.startswith(whole, start):
        return min(start + len(whole) + cut, len(document))
    tail, expected = whole[-_TAIL:], start + len(whole)
    first = max(start, expected - len(tail) - _NEAR)
    found = document.find(tail, first, expected + _NEAR) if tail.strip() else -1
    return min(found + len(tail) + cut if found >= 0 else expected, len(document))
