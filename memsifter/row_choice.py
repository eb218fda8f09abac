"""Which questions of a data set a round trains: those that the last round ranked neither well nor hopelessly.

The score of a question is ``rewards.ranking.anchor_score`` of the last ranking; its priority is
``1 - |score - 0.2|``, and the highest are taken (MemSifter, ``EvalSelectActor`` of ``data/rl_train_data_propare.py``;
its column is called ndcg, but is not ideal-normalised). Without a last ranking the choice is random.

Three questions, one gold session each, at place 1, 9 and nowhere of the ranking::

    1 / log2(2) = 1       priority 0.2
    1 / log2(10) = 0.301  priority 0.899      taken first
    0                     priority 0.8

Invariants: the order depends on seed, data set and ids alone, never on the order of the rows, so that the first n are
an exact choice, and the next takes the place of one that turns out to have no room. Equal priorities are ordered by a
hash of those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

ANCHOR = 0.2


@dataclass(frozen=True, slots=True)
class Candidate:
    """A usable row of a file."""

    number: int
    """Its place in the file, from 0."""
    id: str
    score: float | None = None
    """Of its last ranking; None where there is none."""


def priority(score: float) -> float:
    return 1 - abs(score - ANCHOR)


def in_order(candidates: Iterable[Candidate], *, seed: int, dataset: str, anchored: bool) -> list[Candidate]:
    """All of them, first those to take first.

    Args:
        anchored: by priority, every candidate having a score; else at random.
    """

    def rank(candidate: Candidate) -> tuple[float, str]:
        digest = hashlib.sha256(f"{seed}/{dataset}/{candidate.id}".encode()).hexdigest()
        if not anchored:
            return 0.0, digest
        assert candidate.score is not None, f"{candidate.id} has no ranking"
        return -priority(candidate.score), digest

    return sorted(candidates, key=rank)
