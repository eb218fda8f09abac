"""The difference of two memories, word by word, as a terminal shows it.

A word is a run of letters and digits, a single character of a script without blanks, or a single other mark. Blanks
belong to the word before them and are not compared. Worked example::

    "Ann has metal"  to  "Ann has metal silver"     same "Ann has metal ", added "silver"

``web/difference.js`` cuts and compares alike; which of several equally short differences is found may differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from .facts import WITHOUT_BLANKS

_WORD = re.compile(rf"(?:[{WITHOUT_BLANKS}]|[^\W{WITHOUT_BLANKS}]+|[^\w\s]|^(?=\s))\s*")


class Change(StrEnum):
    SAME = "same"
    ADDED = "added"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Part:
    change: Change
    text: str


def difference(before: str, after: str) -> list[Part]:
    """Parts in the order of reading; those not removed make up ``after``, the others ``before`` but for blanks."""
    old, new = _WORD.findall(before), _WORD.findall(after)
    matcher = SequenceMatcher(None, [w.rstrip() for w in old], [w.rstrip() for w in new], autojunk=False)
    parts: list[Part] = []
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            parts.append(Part(Change.SAME, "".join(new[c:d])))
            continue
        if b > a:
            parts.append(Part(Change.REMOVED, "".join(old[a:b])))
        if d > c:
            parts.append(Part(Change.ADDED, "".join(new[c:d])))
    return parts
