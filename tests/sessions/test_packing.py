"""Packing: never over the budget, and the same rule for every model that is shown sessions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.sessions.packing import by_score, pack

SIZES = st.lists(st.integers(1, 30), max_size=20)


@st.composite
def orders(draw):
    sizes = draw(SIZES)
    order = draw(st.permutations(range(len(sizes))))
    return order[: draw(st.integers(0, len(order)))], sizes


@pytest.mark.parametrize(
    ("order", "tokens", "budget", "shown", "used", "too_large", "cut"),
    [
        ([3, 1, 0, 2], [4, 12, 5, 3], 10, (0, 3), 7, (1,), True),  # the module's example
        ([], [4, 5], 10, (), 0, (), False),
        ([1, 0], [4, 5], 9, (0, 1), 9, (), False),  # exactly full
        ([1, 0], [4, 5], 8, (1,), 5, (), True),
        ([0, 1, 2], [5, 6, 1], 10, (0,), 5, (), True),  # 2 would fit, but 1 ended it: the published rule
        ([0, 1], [11, 12], 10, (), 0, (0, 1), False),  # nothing can ever be shown
        ([0, 1], [3, 3], 0, (), 0, (0, 1), False),
        ([0, 1], [3, 3], -5, (), 0, (0, 1), False),
    ],
)
def test_sessions_are_taken_until_one_does_not_fit(order, tokens, budget, shown, used, too_large, cut):
    packed = pack(order, tokens, budget)
    assert (packed.shown, packed.tokens, packed.too_large, packed.cut) == (shown, used, too_large, cut)


@pytest.mark.parametrize("order", [[0, 0], [-1], [2]])
def test_a_position_that_is_none_is_refused(order):
    with pytest.raises(ValueError):
        pack(order, [1, 1], 10)


@given(orders(), st.integers(-3, 200))
def test_the_budget_is_never_exceeded(packing, budget):
    order, sizes = packing
    packed = pack(order, sizes, budget)
    assert packed.tokens == sum(sizes[position] for position in packed.shown) <= max(0, budget)
    assert list(packed.shown) == sorted(set(packed.shown)) and set(packed.shown) <= set(order)
    assert not set(packed.shown) & set(packed.too_large)
    assert packed.cut or set(order) == {*packed.shown, *packed.too_large}


@given(orders(), st.integers(0, 200), st.integers(0, 20))
def test_a_longer_order_shows_all_that_its_beginning_did(packing, budget, length):
    order, sizes = packing
    assert set(pack(order[:length], sizes, budget).shown) <= set(pack(order, sizes, budget).shown)


@given(orders(), st.integers(30, 200), st.integers(0, 100))
def test_a_larger_budget_shows_all_that_a_smaller_one_did(packing, budget, more):
    order, sizes = packing  # no session is larger than the smaller budget
    assert set(pack(order, sizes, budget).shown) <= set(pack(order, sizes, budget + more).shown)


def test_a_session_that_was_too_large_takes_the_room_of_those_behind_it():
    assert pack([0, 1], [12, 8], 10).shown == (1,)
    assert pack([0, 1], [12, 8], 15).shown == (0,)


@pytest.mark.parametrize(
    ("scores", "order"),
    [
        ([], []), ([0.1, 0.9, 0.5], [1, 2, 0]), ([0.5, 0.5, 0.9], [2, 0, 1]),
        ([float("nan"), -2.0, float("nan"), 1.0], [3, 1, 0, 2]), ([float("-inf"), 0.0, float("inf")], [2, 1, 0]),
    ],
)
def test_scores_fall_and_equal_ones_keep_the_order_of_time(scores, order):
    assert by_score(scores) == order


def test_a_session_without_a_score_comes_last():
    assert by_score([None, 0.1, float("nan"), 0.5, None]) == [3, 1, 0, 2, 4]
