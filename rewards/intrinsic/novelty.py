"""How far a text is from earlier ones, by its letters, its lines or its words; no model.

entropy   bits of a letter drawn from the earlier texts and the new one together: Shannon, as Memory-R+'s baseline. A
          text that uses the rarer letters raises it.
lines     edits that make one text's lines another's, over the longer one's number of lines; the mean over the earlier
          texts. It is the tree edit distance of the published baseline: there a text is a root whose children are its
          lines, and such trees differ by the edits of one sequence. Its random choice of lines is an even one here.
words     1 - shared words over all words (Jaccard); the mean over the earlier texts.

Example: lines a b c against a c d: drop b, add d, of 3 lines: 2/3. Words "a b" against "b c": 1 - 1/3.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence


def letters(texts: Sequence[str]) -> Counter[str]:
    """How often each letter stands in the texts, with a blank between any two."""
    return Counter(" ".join(texts))


def entropy(counts: Mapping[str, int]) -> float:
    """In bits; 0 of nothing. Summed exactly, so that the order of the letters plays no part."""
    total = sum(counts.values())
    return -math.fsum(n / total * math.log2(n / total) for n in counts.values()) if total else 0.0


def chosen_lines(text: str, most: int) -> tuple[str, ...]:
    """At most ``most`` of its lines that are not blank, evenly spread from the first to the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) <= most:
        return tuple(lines)
    return tuple(lines[round(i * (len(lines) - 1) / max(1, most - 1))] for i in range(most))


def lines_apart(one: Sequence[str], other: Sequence[str]) -> float:
    """Lines to add, drop or change, over those of the longer text; 0 to 1."""
    row = list(range(len(other) + 1))
    for i, line in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, against in enumerate(other, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (line != against))
    return row[-1] / max(len(one), len(other), 1)


def words_apart(one: frozenset[str], other: frozenset[str]) -> float:
    """0 to 1; two texts without words are equal."""
    union = len(one | other)
    return 1 - len(one & other) / union if union else 0.0
