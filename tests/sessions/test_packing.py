"""Packing: never over the budget, and the same rule for every model that is shown sessions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.sessions.packing import by_score, pack


@pytest.mark.parametrize("order, tokens, budget, shown", [
    ([3, 1, 0, 2], [4, 12, 5, 3], 10, (0, 3)),  # the module's example
    ([], [4, 5], 10, ()), ([1, 0], [4, 5], 9, (0, 1)), ([1, 0], [4, 5], 8, (1,)), ([0, 1], [3, 3], -5, ()),
    ([0, 1, 2], [5, 6, 1], 10, (0,)),  # 2 would fit, but 1 ended it: the published rule
    ([0, 1], [12, 8], 10, (1,)), ([0, 1], [12, 8], 15, (0,)),  # what was too large takes the room of those behind it
])
def test_sessions_are_taken_until_one_does_not_fit(order, tokens, budget, shown):
    assert pack(order, tokens, budget) == (shown, sum(tokens[position] for position in shown))


@given(st.lists(st.integers(1, 30), max_size=20), st.randoms(), st.integers(30, 200), st.integers(0, 20))
def test_no_budget_is_exceeded_and_more_shows_all_that_less_did(sizes, random, budget, some):
    order = random.sample(range(len(sizes)), len(sizes))  # no session is larger than the budget
    packed = pack(order, sizes, budget)
    assert packed.tokens <= budget and list(packed.shown) == sorted(set(packed.shown))
    assert {*pack(order[:some], sizes, budget).shown} <= {*packed.shown} <= {*pack(order, sizes, budget + some).shown}


@pytest.mark.parametrize("scores, order", [
    ([], []), ([0.1, 0.9, 0.5], [1, 2, 0]), ([0.5, 0.5, 0.9], [2, 0, 1]),
    ([None, 0.1, float("nan"), 0.5, None], [3, 1, 0, 2, 4]), ([float("-inf"), 0.0, float("inf")], [2, 1, 0]),
])
def test_scores_fall_and_equal_ones_keep_the_order_of_time(scores, order):
    assert by_score(scores) == order
