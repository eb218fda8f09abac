"""ReMemR1's subsets of distant evidence: questions whose supporting documents lie far apart, the last one first.

By ReMemR1's process_test.py (``generate_input_output``, ``generate_dataset``): the places of a question's evidence are
those of the documents of its supporting facts, counted from 0, one place for every fact and in the facts' order. A
question belongs to the subset of distance d if its places fall, and neighbours among them are d documents apart or
more. A worked example, for a document of 300::

    facts in the paragraphs B, A; A is the 11th document, B the 251st  ->  places (250, 10), falling, distance 240

The paper uses d = 100, 200, 400, 800, 1600, and draws five times as many questions as a file is to have. As there, a
question with two facts in one paragraph has distance 0 and belongs to no subset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

DISTANCES = (100, 200, 400, 800, 1600)
CANDIDATES = 5
"""Questions looked at for each one that a file may have."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the evidence of a question stands."""

    places: tuple[int, ...]

    @property
    def falling(self) -> bool:
        return all(before >= after for before, after in pairwise(self.places))

    @property
    def distance(self) -> int:
        """The least one between neighbours; 0 where there are no two."""
        return min((after - before for before, after in pairwise(sorted(self.places))), default=0)

    def belongs_to(self, distance: int) -> bool:
        return self.falling and self.distance >= distance


def places_of(evidence: Sequence[int], numbers: Sequence[int]) -> Places:
    """``evidence``: a document for every fact; ``numbers``: those of the whole document, in reading order."""
    place = {number: at for at, number in enumerate(numbers)}
    return Places(tuple(place[number] for number in evidence))


def subset_name(length: int, distance: int) -> str:
    return f"eval_{length}_min_distance_{distance}.json"
