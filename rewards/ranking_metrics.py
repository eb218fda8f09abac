"""How good a ranking is: what of the gold stands how far in front. Positions and ids alike.

Ranks count from 1; ``ranking`` is best first and names nothing twice; ``gold`` is what should be found, in any order.

=====================  =======================================================================================
``recall_at``          hits among the first k / |gold|
``precision_at``       hits among the first k / k
``reciprocal_rank``    1 / rank of the first hit, 0 where the first k hold none (its mean is MRR)
``average_precision``  sum over hits among the first k of (hits so far / rank) / min(k, |gold|)
``dcg_at``             sum over hits among the first k of 1 / log2(rank + 1)
``ndcg_at``            ``dcg_at`` / its value for the best ranking of k
``anchor_score``       ``dcg_at`` / |gold|: what MemSifter picks training rows by, and its warm-up reward; a score of
                       1 is not within reach where there are several gold
=====================  =======================================================================================

Worked example, ranking 7 2 9 4, gold {2, 4, 5}: the hits have ranks 2 and 4::

    recall@1 0, @4 2/3 | precision@4 2/4 | 1/2 | AP@4 (1/2 + 2/4) / 3 = 1/3
    dcg@4 = 1/log2(3) + 1/log2(5) = 0.6309 + 0.4307 = 1.0616
    best of 4: ranks 1, 2, 3: 1 + 0.6309 + 0.5 = 2.1309, so ndcg@4 = 0.4982, and the anchor score is 0.3539

The whole gold counts at every k. Published tables (MemSifter, ``utils/eval_utils.py``) cut the gold to its first k
ids at a cut-off k, so a hit on another one counts as a miss; their MAP is the sum of 1 / rank of the hits / |gold|.
``published_at`` and ``published_map`` are those, for comparison with published figures alone.

Nobody can say how good a ranking is where there is no gold: every function raises ValueError, and a row without gold
is not counted, neither as 0 nor as 1.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from math import log2

Names = Sequence[Hashable]


def recall_at(ranking: Names, gold: Collection[Hashable], k: int) -> float:
    return len(hit_ranks(ranking, gold, k)) / len(set(gold))


def precision_at(ranking: Names, gold: Collection[Hashable], k: int) -> float:
    """Over k places, also where fewer are named."""
    return len(hit_ranks(ranking, gold, k)) / k


def reciprocal_rank(ranking: Names, gold: Collection[Hashable], k: int | None = None) -> float:
    ranks = hit_ranks(ranking, gold, k)
    return 1 / ranks[0] if ranks else 0.0


def average_precision(ranking: Names, gold: Collection[Hashable], k: int | None = None) -> float:
    found = sum(hits / rank for hits, rank in enumerate(hit_ranks(ranking, gold, k), 1))
    return found / min(len(set(gold)), k or len(set(gold)))


def dcg_at(ranking: Names, gold: Collection[Hashable], k: int) -> float:
    return _dcg(hit_ranks(ranking, gold, k))


def ndcg_at(ranking: Names, gold: Collection[Hashable], k: int) -> float:
    return dcg_at(ranking, gold, k) / _dcg(range(1, min(k, len(set(gold))) + 1))


def anchor_score(ranking: Names, gold: Collection[Hashable], k: int = 10) -> float:
    return dcg_at(ranking, gold, k) / len(set(gold))


def published_at(ranking: Names, gold: Names, k: int) -> dict[str, float]:
    """``recall``, ``mrr``, ``map`` and ``ndcg`` as MemSifter's tables have them; ``gold`` in the data's order."""
    kept = list(dict.fromkeys(gold))[:k]
    return {
        "recall": recall_at(ranking, kept, k), "mrr": reciprocal_rank(ranking, kept, k),
        "map": published_map(ranking, kept, k), "ndcg": ndcg_at(ranking, kept, k),
    }


def published_map(ranking: Names, gold: Collection[Hashable], k: int | None = None) -> float:
    """The sum of 1 / rank of the hits / |gold|: no average precision, which counts hits so far."""
    return sum(1 / rank for rank in hit_ranks(ranking, gold, k)) / len(set(gold))


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
