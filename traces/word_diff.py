"""What changed between two memories, word by word.

::

    "Ann: Rome"  ->  "Ann: Rome, silver"        same "Ann: Rome", added ", silver"
    marked                                      Ann: Rome{+, silver+}

Invariants: same and removed pieces joined are the old text, same and added ones the new text; no piece is empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from enum import StrEnum

from .longest_match import longest_match

_CJK = "぀-ヿ㐀-鿿豈-﫿"
_WORD = re.compile(rf"\s+|[{_CJK}]|[^\W{_CJK}]+|[^\w\s]")
"""Blanks, words and single marks; of scripts without blanks every character is a word."""
_MOST_LOOKS = 300_000
"""At words: each run of words that stayed makes difflib look again at those on either side of it. Memories of 5,000
words, one in five of them replaced, need 240,000; as many take a second at most."""


class Change(StrEnum):
    SAME = "same"
    ADDED = "added"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Piece:
    change: Change
    text: str


def word_diff(before: str, after: str) -> list[Piece]:
    """The pieces of both texts, in order, removed ones before what is added in their place."""
    pieces: list[Piece] = []
    for same, old, new in _runs(_WORD.findall(before), _WORD.findall(after)):
        if same:
            pieces.append(Piece(Change.SAME, new))
            continue
        pieces += [Piece(change, text) for change, text in ((Change.REMOVED, old), (Change.ADDED, new)) if text]
    return pieces


def opcodes(old: Sequence[str], new: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    """difflib's, of words; what is too long to be compared word by word is replaced as a whole."""
    return _Matcher(old, new, _MOST_LOOKS).get_opcodes()


class _Matcher(SequenceMatcher[str]):
    """difflib's, with a bound: for a part that it has not the time to look at, what the part begins or ends with."""

    def __init__(self, old: Sequence[str], new: Sequence[str], looks: int) -> None:
        super().__init__(None, old, new, autojunk=False)
        self._old, self._new, self._looks = old, new, looks

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        old, new = self._old[alo:ahi], self._new[blo:bhi]
        words = len(old) + len(new)
        if words <= self._looks:
            self._looks -= words
            found = longest_match(old, new)
        elif same := _same(old, new):
            found = Match(0, 0, same)
        else:
            same = _same(old[::-1], new[::-1])
            found = Match(len(old) - same, len(new) - same, same)
        return Match(alo + found.a, blo + found.b, found.size)


def _same(old: Sequence[str], new: Sequence[str]) -> int:
    """Words that both begin with."""
    return next((at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other),
                min(len(old), len(new)))


def _runs(old: Sequence[str], new: Sequence[str]) -> list[tuple[bool, str, str]]:
    """What stayed and what changed, in turn. Blanks and marks between two changes belong to them: replaced words would
    else be shown one by one, each beside the one that took its place."""
    runs: list[tuple[bool, list[str], list[str]]] = []
    for tag, a, b, c, d in opcodes(old, new):
        same, left, right = tag == "equal", old[a:b], new[c:d]
        if not same and len(runs) > 1 and not any(re.search(r"\w", word) for word in runs[-1][2]):
            _, between, _ = runs.pop()
            runs[-1][1].extend((*between, *left))
            runs[-1][2].extend((*between, *right))
        else:
            runs.append((same, [*left], [*right]))
    return [(same, "".join(left), "".join(right)) for same, left, right in runs]


def shortened(pieces: Sequence[Piece], around: int = 5) -> list[Piece]:
    """The changes with ``around`` words of what stayed on each side of them, and an ellipsis for the rest."""
    return [piece for number, piece in enumerate(pieces)
            for piece in _cut(piece, around, first=number == 0, last=number == len(pieces) - 1)]


def _cut(piece: Piece, around: int, *, first: bool, last: bool) -> Iterator[Piece]:
    words = list(re.finditer(r"\S+", piece.text))
    sides = (not first) + (not last)
    if piece.change is not Change.SAME or len(words) <= sides * around + 1:
        yield piece
        return
    head = "" if first else piece.text[: words[around - 1].end()] + " "
    tail = "" if last else " " + piece.text[words[-around].start() :]
    yield Piece(Change.SAME, f"{head}…{tail}")


def marked(pieces: Sequence[Piece]) -> str:
    """Where there are no colours: ``[-removed-]`` and ``{+added+}``."""
    frames = {Change.SAME: ("", ""), Change.ADDED: ("{+", "+}"), Change.REMOVED: ("[-", "-]")}
    return "".join(frames[piece.change][0] + piece.text + frames[piece.change][1] for piece in pieces)
