"""How good a ranking is: what of the gold stands how far in front. Positions and ids alike.

Ranks count from 1; ``ranking`` is best first and names nothing twice; ``gold`` is what should be found, in any order.

=====================  =======================================================================================
``recall_at``          hits among the first k / |gold|
``reciprocal_rank``    1 / rank of the first hit, 0 where the first k hold none (its mean is MRR)
``dcg_at``             sum over hits among the first k of 1 / log2(rank + 1)
``ndcg_at``            ``dcg_at`` / its value for the best ranking of k
``anchor_score``       ``dcg_at`` / |gold|: what MemSifter picks training rows by, and its warm-up reward; a score of
                       1 is not within reach where there are several gold
=====================  =======================================================================================

Worked example, ranking 7 2 9 4, gold {2, 4, 5}: the hits have ranks 2 and 4::

    recall@1 0, @4 2/3 | reciprocal rank 1/2
    dcg@4 = 1/log2(3) + 1/log2(5) = 0.6309 + 0.4307 = 1.0616
    best of 4: ranks 1, 2, 3: 1 + 0.6309 + 0.5 = 2.1309, so ndcg@4 = 0.4982, and the anchor score is 0.3539

The whole gold counts at every k. Published tables (MemSifter, ``utils/eval_utils.py``) cut the gold to its first k
ids at a cut-off k, so a hit on another one counts as a miss.

Nobody can say how good a ranking is where there is no gold: every function raises ValueError, and a row without gold
is not counted, neither as 0 nor as 1.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from math import log2

Names = Sequence[Hashable]


def recall_at(ranking: Names, gold: Collection[Hashable], k: int) -> float:
    return len(hit_ranks(ranking, gold, k)) / len(set(gold))


def reciprocal_rank(ranking: Names, gold: Collection[Hashable], k: int | None = None) -> float:
    ranks = hit_ranks(ranking, gold, k)
    return 1 / ranks[0] if ranks else 0.0


def dcg_at(ranking: Names, gold: Collection[Hashable], k: int) -> float:
    return _dcg(hit_ranks(ranking, gold, k))


def ndcg_at(ranking: Names, gold: Collection[Hashable], k: int) -> float:
    return dcg_at(ranking, gold, k) / _dcg(range(1, min(k, len(set(gold))) + 1))


def anchor_score(ranking: Names, gold: Collection[Hashable], k: int = 10) -> float:
    return dcg_at(ranking, gold, k) / len(set(gold))


def hit_ranks(ranking: Names, gold: Collection[Hashable], k: int | None = None) -> list[int]:
    """The ranks, ascending, at which gold stands among the first ``k``. Raises ValueError."""
    if k is not None and k < 1:
        raise ValueError(f"the first {k} of a ranking; give 1 or more")
    wanted = set(gold)
    if not wanted:
        raise ValueError("no gold: such a row is not counted")
    if len(set(ranking)) != len(ranking):
        raise ValueError(f"a ranking names something twice: {list(ranking)!r:.80}")
    return [rank for rank, name in enumerate(ranking[:k], 1) if name in wanted]


def _dcg(ranks: Sequence[int]) -> float:
    return sum(1 / log2(rank + 1) for rank in ranks)
