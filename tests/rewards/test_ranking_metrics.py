"""Ranking metrics: golden vectors worked out by hand, and what holds for every ranking.

Discounts 1 / log2(rank + 1): 1, 0.6309, 0.5, 0.4307, 0.3869, 0.3562, 0.3333, 0.3155, 0.3010, 0.2891. Their sums: 1,
1.6309, 2.1309, 2.5616, 2.9485.
"""

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from mem_agent.rewards.ranking_metrics import (
    anchor_score,
    dcg_at,
    hit_ranks,
    ndcg_at,
    recall_at,
    reciprocal_rank,
)

ALL = (recall_at, reciprocal_rank, dcg_at, ndcg_at, anchor_score)
# ranking, gold, k: recall, reciprocal rank, dcg, ndcg, dcg / |gold|
GOLDEN = [
    ([7, 2, 9, 4], {2, 4, 5}, 4, 2 / 3, 0.5, 1.0616, 0.4982, 0.3539),  # the module's example
    ([7, 2, 9, 4], {2, 4, 5}, 1, 0, 0, 0, 0, 0),
    ([7, 2, 9, 4], {2, 4, 5}, 2, 1 / 3, 0.5, 0.6309, 0.6309 / 1.6309, 0.2103),  # best of 2: two hits
    ([3], {3}, 1, 1, 1, 1, 1, 1),
    ([3], {3}, 10, 1, 1, 1, 1, 1),  # nine places are empty: they are no hits
    ([], {3}, 5, 0, 0, 0, 0, 0),
    # |gold| > k: a ranking that can name one of three names one: ndcg 1, recall 1/3
    ([5], {5, 6, 7}, 1, 1 / 3, 1, 1, 1, 1 / 3),
    ([6, 5, 0, 1, 2], {5, 6, 7, 8, 9, 10}, 5, 1 / 3, 1, 1.6309, 1.6309 / 2.9485, 0.2718),
    # the tenth place
    ([*range(9), 42], {42}, 10, 1, 0.1, 0.2891, 0.2891, 0.2891),
    ([*range(10), 42], {42}, 10, 0, 0, 0, 0, 0),
    (["b", "a"], ["a", "a"], 2, 1, 0.5, 0.6309, 0.6309, 0.6309),  # ids, and a gold named twice is one
]


@pytest.mark.parametrize(("ranking", "gold", "k", "recall", "rr", "dcg", "ndcg", "anchor"), GOLDEN)
def test_golden_vectors(ranking, gold, k, recall, rr, dcg, ndcg, anchor):
    found = [metric(ranking, gold, k) for metric in ALL]
    assert found == pytest.approx([recall, rr, dcg, ndcg, anchor], abs=1e-4)


def test_the_anchor_score_is_that_of_ten_places_and_not_normalised():
    """Two gold at ranks 1 and 2: (1 + 0.6309) / 2, though no ranking is better; ndcg says 1."""
    assert anchor_score([4, 8, 1], {4, 8}) == pytest.approx(0.8155, abs=1e-4)
    assert ndcg_at([4, 8, 1], {4, 8}, 10) == 1.0
    assert anchor_score([*range(4), 9], {9}) == pytest.approx(1 / log2(6))


@pytest.mark.parametrize("metric", ALL)
def test_without_gold_there_is_no_score(metric):
    with pytest.raises(ValueError, match="no gold"):
        metric([1, 2], [], 5)


@pytest.mark.parametrize(("ranking", "k", "says"), [([1, 1], 5, "twice"), ([1], 0, "first 0"), ([1], -1, "first -1")])
def test_what_is_no_ranking_or_cut_off_is_refused(ranking, k, says):
    with pytest.raises(ValueError, match=says):
        hit_ranks(ranking, {1}, k)


@given(st.permutations(range(12)), st.sets(st.integers(0, 14), min_size=1), st.integers(1, 12))
def test_scores_lie_between_0_and_1_and_better_rankings_score_more(ranking, gold, k):
    found = [metric(ranking, gold, k) for metric in ALL if metric is not dcg_at]
    assert all(0 <= score <= 1 + 1e-12 for score in found)
    best = sorted(ranking, key=lambda name: name not in gold)
    reachable = len(gold & set(ranking)) >= min(k, len(gold))
    for metric in ALL:
        assert metric(best, gold, k) >= metric(ranking, gold, k) - 1e-12
    if reachable:
        assert ndcg_at(best, gold, k) == pytest.approx(1)


@given(st.permutations(range(12)), st.sets(st.integers(0, 11), min_size=1, max_size=11), st.integers(2, 12))
def test_ndcg_is_scikit_learns(ranking, gold, k):
    relevant = [[int(name in gold) for name in range(12)]]
    falling = [[-ranking.index(name) for name in range(12)]]
    assert ndcg_at(ranking, gold, k) == pytest.approx(ndcg_score(relevant, falling, k=k))
