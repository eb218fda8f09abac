"""best@k by hand, and as the published trainer's bootstrap has it."""

import random

import pytest

from mem_agent.rewards.best_of import expected_best


@pytest.mark.parametrize("values,expected", [
    ([1.0], 1.0), ([0.0, 1.0], 3 / 4), ([1.0, 0.0, 0.0, 0.0], 1 - (3 / 4) ** 4), ([1.0] * 4, 1.0), ([0.0] * 4, 0.0),
    # of three draws all are 0.2 in 1 of 27 cases, at most 0.5 in 8, else the best is 1
    ([1.0, 0.2, 0.5], 0.2 / 27 + 0.5 * 7 / 27 + 19 / 27),
])
def test_by_hand(values, expected):
    assert expected_best(values) == pytest.approx(expected)


def test_many_draws_come_to_it():
    """verl draws k of k answers with replacement, 1,000 times, and reports the mean of the best."""
    rng = random.Random(0)
    for _ in range(20):
        values = [rng.random() for _ in range(4)]
        drawn = sum(max(rng.choices(values, k=4)) for _ in range(20_000)) / 20_000
        assert expected_best(values) == pytest.approx(drawn, abs=0.01)
