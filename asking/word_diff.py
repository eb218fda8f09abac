"""What changed between two memories, word by word.

A word is a run of letters and digits, a single character of a script without blanks, or a single other mark. Blanks
belong to the word before them and are not compared::

    "Ann: Rome"  ->  "Ann: Rome, silver"        same "Ann: Rome", added ", silver"
    marked                                      Ann: Rome{+, silver+}

Where most words changed, whole sentences are compared, as what stayed would be "the" and "of" between two texts.

Invariants: same and added pieces joined are the new text, same and removed ones the old text except for blanks; no
piece is empty.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from typing import NamedTuple

from ..agents.documents import SENTENCE

WITHOUT_BLANKS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese characters, as a class of a regular expression."""
_WORD = re.compile(rf"(?:[{WITHOUT_BLANKS}]|[^\W{WITHOUT_BLANKS}]+|[^\w\s]|^(?=\s))\s*")


class Change(StrEnum):
    SAME = "same"
    ADDED = "added"
    REMOVED = "removed"


MARKS = {Change.SAME: ("", ""), Change.ADDED: ("{+", "+}"), Change.REMOVED: ("[-", "-]")}


class Piece(NamedTuple):
    change: Change
    text: str


def word_diff(before: str, after: str) -> list[Piece]:
    """The pieces of both texts, in order, removed ones before what is added in their place."""
    pieces = _differing(_WORD.findall(before), _WORD.findall(after))
    kept = sum(len(piece.text) for piece in pieces if piece.change is Change.SAME)
    old, new = SENTENCE.findall(before), SENTENCE.findall(after)
    if 2 * kept >= min(len(before), len(after)) or max(len(old), len(new)) < 2:
        return pieces
    return _differing(old, new)


def _differing(old: list[str], new: list[str]) -> list[Piece]:
    matcher = SequenceMatcher(None, [word.rstrip() for word in old], [word.rstrip() for word in new], autojunk=False)
    pieces = []
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            pieces.append(Piece(Change.SAME, "".join(new[c:d])))
        else:
            pieces += [Piece(Change.REMOVED, "".join(old[a:b])), Piece(Change.ADDED, "".join(new[c:d]))]
    return [piece for piece in pieces if piece.text]


def shortened(pieces: Sequence[Piece], around: int = 5) -> list[Piece]:
    """The changes with ``around`` words of what stayed on each side of them, and an ellipsis for the rest."""
    found = []
    for number, piece in enumerate(pieces):
        words = list(re.finditer(r"\S+", piece.text))
        first, last = number == 0, number == len(pieces) - 1
        if piece.change is Change.SAME and len(words) > (2 - first - last) * around + 1:
            head = "" if first else piece.text[: words[around - 1].end()] + " "
            tail = "" if last else " " + piece.text[words[-around].start() :]
            piece = Piece(Change.SAME, f"{head}…{tail}")
        found.append(piece)
    return found


def marked(pieces: Sequence[Piece]) -> str:
    """Where there are no colours: ``[-removed-]`` and ``{+added+}``, with their last blanks behind the mark."""
    shown = []
    for piece in pieces:
        (opening, closing), text = MARKS[piece.change], piece.text.rstrip()
        shown.append(opening + text + closing + piece.text[len(text) :])
    return "".join(shown)
