"""Ranking metrics: golden vectors worked out by hand, and what holds for every ranking.

Discounts 1 / log2(rank + 1): 1, 0.6309, 0.5, 0.4307, 0.3869, 0.3562, 0.3333, 0.3155, 0.3010, 0.2891.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from mem_agent.rewards.ranking import anchor_score, ndcg_at, read_history, read_row, recall_at, reciprocal_rank
from mem_agent.rewards.sessions import BadRow
from mem_agent.tests.helpers.ranked_rows import history, metadata

# ranking, gold, k: recall, reciprocal rank, ndcg; and dcg of 10 / |gold|
GOLDEN = [
    ([7, 2, 9, 4], {2, 4, 5}, 4, 2 / 3, 0.5, 0.4982, 0.3539),  # the module's example
    ([7, 2, 9, 4], {2, 4, 5}, 2, 1 / 3, 0.5, 0.6309 / 1.6309, 0.3539),  # best of 2: two hits
    ([3], {3}, 10, 1, 1, 1, 1),  # nine places are empty: they are no hits
    ([], {3}, 5, 0, 0, 0, 0),
    ([5], {5, 6, 7}, 1, 1 / 3, 1, 1, 1 / 3),  # |gold| > k
    ([*range(9), 42], {42}, 10, 1, 0.1, 0.2891, 0.2891),
    (["b", "a"], ["a", "a"], 2, 1, 0.5, 0.6309, 0.6309),  # ids, and a gold named twice is one
]


@pytest.mark.parametrize(("ranking", "gold", "k", "recall", "rr", "ndcg", "anchor"), GOLDEN)
def test_golden_vectors(ranking, gold, k, recall, rr, ndcg, anchor):
    found = [metric(ranking, gold, k) for metric in (recall_at, reciprocal_rank, ndcg_at)]
    assert [*found, anchor_score(ranking, gold)] == pytest.approx([recall, rr, ndcg, anchor], abs=1e-4)


@given(st.permutations(range(12)), st.sets(st.integers(0, 11), min_size=1, max_size=11), st.integers(2, 12))
def test_ndcg_is_scikit_learns(ranking, gold, k):
    relevant = [[int(name in gold) for name in range(12)]]
    falling = [[-ranking.index(name) for name in range(12)]]
    assert ndcg_at(ranking, gold, k) == pytest.approx(ndcg_score(relevant, falling, k=k))


ROW = metadata("h1", 12, gold=3, options=None)


def test_a_row_is_read_with_its_history():
    row = read_row(ROW)
    assert (row.question, row.answers, row.shown, row.options) == ("Where do I live?", ("Lyon",), 12, ())
    sessions = read_history(history(12, gold=3))
    assert sessions[3].turns[0].content == "I live in Lyon." and sessions[3].date == "2023/05/04"


@pytest.mark.parametrize("change", [{"answers": []}, {"history_id": None}, {"options": ["x"] * 27}])
def test_a_bad_row_is_named(change):
    with pytest.raises(BadRow, match="q-h1"):
        read_row(ROW | change)
