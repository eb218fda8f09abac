"""The longest run of words that two texts share, in time that grows with their lengths.

difflib looks at all pairs of equal words, and every blank is equal to every other: a second for texts of 1,800 words.
Here the runs of the one text are the paths of a graph through which the other is read (a suffix automaton)::

    "a b c b d", "b d a b"  ->  old[0:2] = new[2:4] = "a b"

Invariant: of several runs as long, it is difflib's: the first in ``old``, and there the first in ``new``.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import Match


def longest_match(old: Sequence[str], new: Sequence[str]) -> Match:
    """Where it begins in ``old`` and in ``new``, and how many words it has; (0, 0, 0) where there is none."""
    after, shorter, size, end = _runs_of(new)
    at = length = 0
    found = Match(0, 0, 0)
    for place, word in enumerate(old, 1):
        while at and word not in after[at]:
            at = shorter[at]
            length = size[at]
        if word in after[at]:
            at = after[at][word]
            length += 1
        if length > found.size:
            found = Match(place - length, end[at] - length, length)
    return found


def _runs_of(words: Sequence[str]) -> tuple[list[dict[str, int]], list[int], list[int], list[int]]:
    """By node, which stands for runs that end at the same places: the node after each next word, the node of the
    longest of their endings that stand at more places, the length of the longest run, and where it first ends."""
    after: list[dict[str, int]] = [{}]
    shorter, size, end = [-1], [0], [0]

    def node(steps: dict[str, int], ending: int, length: int, place: int) -> int:
        after.append(steps)
        shorter.append(ending)
        size.append(length)
        end.append(place)
        return len(size) - 1

    last = 0
    for place, word in enumerate(words, 1):
        at, last = last, node({}, 0, place, place)
        while at >= 0 and word not in after[at]:
            after[at][word] = last
            at = shorter[at]
        if at < 0:
            continue
        known = shorter[last] = after[at][word]
        if size[known] == size[at] + 1:
            continue
        part = shorter[last] = node(dict(after[known]), shorter[known], size[at] + 1, end[known])
        shorter[known] = part
        while at >= 0 and after[at].get(word) == known:
            after[at][word] = part
            at = shorter[at]
    return after, shorter, size, end
