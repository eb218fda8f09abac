"""Group statistics over trajectories: golden values and invariants."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.rewards.advantages import group_advantages

REWARDS = st.lists(st.tuples(st.one_of(st.none(), st.floats(-5, 5)), st.integers(0, 3)), min_size=1, max_size=24)


@pytest.mark.parametrize(
    "rewards,groups,std,expected",
    [
        ([1, 0, None, 1], "aaaa", False, [1 / 3, -2 / 3, 0, 1 / 3]),
        ([1, 0, 1, 0], "abab", False, [0, 0, 0, 0]),
        ([1, 0, 0, 0], "abba", False, [0.5, 0, 0, -0.5]),
        ([1], "a", True, [0]),
        # mean 1/2, unbiased std sqrt(2 * 1/4 / 1) = sqrt(1/2)
        ([1, 0], "aa", True, [0.5 / (math.sqrt(0.5) + 1e-6), -0.5 / (math.sqrt(0.5) + 1e-6)]),
        ([2, 2, 2], "aaa", True, [0, 0, 0]),
        ([None, None], "aa", True, [0, 0]),
    ],
)
def test_golden(rewards, groups, std, expected):
    assert group_advantages(rewards, groups, std) == pytest.approx(expected)


@given(REWARDS, st.randoms(), st.booleans())
def test_permuting_trajectories_permutes_advantages(rows, random, std):
    order = list(range(len(rows)))
    random.shuffle(order)
    rewards, groups = zip(*rows, strict=True)
    straight = group_advantages(rewards, groups, std)
    shuffled = group_advantages([rewards[i] for i in order], [groups[i] for i in order], std)
    assert shuffled == pytest.approx([straight[i] for i in order])


@given(REWARDS)
def test_advantages_of_a_group_sum_to_zero(rows):
    rewards, groups = zip(*rows, strict=True)
    advantages = group_advantages(rewards, groups)
    for group in set(groups):
        assert sum(a for a, g in zip(advantages, groups, strict=True) if g == group) == pytest.approx(0, abs=1e-9)
