"""Group statistics over trajectories and over their turns: golden values and invariants."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.custom_convert import group_advantages, turn_advantages

REWARDS = st.lists(st.tuples(st.one_of(st.none(), st.floats(-5, 5)), st.integers(0, 3)), min_size=1, max_size=24)
GOLDEN = [
    ([1, 0, None, 1], "aaaa", False, [1 / 3, -2 / 3, 0, 1 / 3]),
    ([1, 0, 0, 0], "abba", False, [0.5, 0, 0, -0.5]),
    ([1], "a", True, [0]),
    # mean 1/2, unbiased std sqrt(2 * 1/4 / 1) = sqrt(1/2)
    ([1, 0], "aa", True, [0.5 / (math.sqrt(0.5) + 1e-6), -0.5 / (math.sqrt(0.5) + 1e-6)]),
    ([2, 2, 2], "aaa", True, [0, 0, 0]),
    ([None, None], "aa", True, [0, 0]),
]


@pytest.mark.parametrize(("rewards", "groups", "std", "expected"), GOLDEN)
def test_group_advantages(rewards, groups, std, expected):
    assert group_advantages(rewards, groups, std) == pytest.approx(expected)


@given(REWARDS, st.randoms(), st.booleans())
def test_permuting_trajectories_permutes_advantages_and_a_group_sums_to_zero(rows, random, std):
    order = list(range(len(rows)))
    random.shuffle(order)
    rewards, groups = zip(*rows, strict=True)
    straight = group_advantages(rewards, groups, std)
    shuffled = group_advantages([rewards[i] for i in order], [groups[i] for i in order], std)
    assert shuffled == pytest.approx([straight[i] for i in order])
    plain = group_advantages(rewards, groups)
    for group in set(groups):
        assert sum(a for a, g in zip(plain, groups, strict=True) if g == group) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("alpha", "weight", "expected"), [
    (0.8, 1.0, [[0.8 * 0.5 + 0.2 * 0.5, 0.8 * 0.5], [-0.8 * 0.5 - 0.2 * 0.5, -0.8 * 0.5]]),
    (0.8, 2.0, [[0.6, 0.4], [-0.6, -0.4]]),
    (0.0, 1.0, [[0.5, 0.0], [-0.5, 0.0]]),
    (1.0, 1.0, [[0.5, 0.5], [-0.5, -0.5]]),
])
def test_the_worked_example_of_turns(alpha, weight, expected):
    mixed = turn_advantages([0.5, -0.5], [[2, 1], [1, 1]], "aa", alpha, weight)
    assert mixed == [pytest.approx(row) for row in expected]


def test_statistics_of_turns_are_of_one_group_and_one_turn():
    # Turn 1 of group a: 2, 1 (mean 3/2); turn 2 of group a: 4 alone; group b alone; the last has none.
    mixed = turn_advantages([0.0] * 4, [[2, 4], [1], [9, 9], None], "aaba", 0.0)
    assert mixed == [[0.5, 0.0], [-0.5], [0.0, 0.0], None]
