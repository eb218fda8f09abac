"""The difference of two memories, word by word, as a terminal shows it.

A word is a run of letters and digits, a single character of a script without blanks, or a single other mark. Blanks
belong to the word before them and are not compared. Worked example::

    "Ann has metal"  to  "Ann has metal silver"     same "Ann has metal ", added "silver"

Unlike ``traces.word_diff``, which tells of a memory as it grows, it keeps apart what two changes have between them:
``web/difference.js`` cuts and compares alike; which of several equally short differences is found may differ.
"""

from __future__ import annotations

import re

from ...traces.word_diff import Change, Piece, opcodes
from .facts import WITHOUT_BLANKS

_WORD = re.compile(rf"(?:[{WITHOUT_BLANKS}]|[^\W{WITHOUT_BLANKS}]+|[^\w\s]|^(?=\s))\s*")


def difference(before: str, after: str) -> list[Piece]:
    """Parts in the order of reading; those not removed make up ``after``, the others ``before`` but for blanks."""
    old, new = _WORD.findall(before), _WORD.findall(after)
    parts: list[Piece] = []
    for kind, a, b, c, d in opcodes([w.rstrip() for w in old], [w.rstrip() for w in new]):
        if kind == "equal":
            parts.append(Piece(Change.SAME, "".join(new[c:d])))
            continue
        if b > a:
            parts.append(Piece(Change.REMOVED, "".join(old[a:b])))
        if d > c:
            parts.append(Piece(Change.ADDED, "".join(new[c:d])))
    return parts
