"""The interval of a rollout's mean reward: by hand, as Student's of group means, and over copies of a group."""

from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.rewards.mean_interval import half_width

groups_of_four = st.lists(st.lists(st.floats(-1, 1), min_size=4, max_size=4), min_size=2, max_size=40)


def test_the_example():
    assert half_width([[0, 1], [1, 1]]) == pytest.approx(12.706 * 0.25)


@pytest.mark.parametrize("groups", [[], [[1.0]], [[0.0, 1.0]]])
def test_one_group_says_nothing(groups):
    assert half_width(groups) is None


@given(groups_of_four)
def test_of_equal_groups_it_is_students_interval_of_their_means(groups):
    means = [fmean(group) for group in groups]
    t = {2: 12.706, 3: 4.303, 9: 2.306, 40: 2.0}.get(len(groups))
    if t is not None:
        assert half_width(groups) == pytest.approx(t * stdev(means) / len(groups) ** 0.5, abs=1e-9)


@given(groups_of_four, st.integers(2, 5))
def test_more_trajectories_that_say_the_same_make_nothing_surer(groups, times):
    assert half_width([group * times for group in groups]) == pytest.approx(half_width(groups), abs=1e-9)
