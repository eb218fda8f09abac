"""best@k by hand, and as the published trainer's bootstrap has it; pass@k by counting every draw."""

import random
from itertools import combinations

import pytest

from mem_agent.rewards.best_of import expected_best, pass_at, pass_sizes


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


@pytest.mark.parametrize("k,answers,right,expected", [
    (1, 4, 1, 1 / 4), (2, 4, 1, 1 / 2), (4, 4, 1, 1.0), (2, 4, 3, 1.0), (3, 4, 0, 0.0), (1, 1, 1, 1.0),
    (10, 200, 7, 1 - 193 * 192 * 191 * 190 * 189 * 188 * 187 * 186 * 185 * 184
     / (200 * 199 * 198 * 197 * 196 * 195 * 194 * 193 * 192 * 191)),
])
def test_pass_at_k_by_hand(k, answers, right, expected):
    assert pass_at(k, answers, right) == pytest.approx(expected)


def test_pass_at_k_is_the_share_of_draws_with_a_right_answer():
    for answers in range(1, 7):
        for right in range(answers + 1):
            values = [1] * right + [0] * (answers - right)
            for k in range(1, answers + 1):
                drawn = [max(some) for some in combinations(values, k)]
                assert pass_at(k, answers, right) == pytest.approx(sum(drawn) / len(drawn))


def test_pass_at_k_is_unbiased():
    """Of 3 answers that are right with probability 0.3, pass@2 has the mean 1 - 0.7^2 = 0.51."""
    probability = dict(enumerate((0.343, 0.441, 0.189, 0.027)))
    mean = sum(chance * pass_at(2, 3, right) for right, chance in probability.items())
    assert mean == pytest.approx(0.51)


def test_the_sizes_that_are_told():
    assert [pass_sizes(n) for n in (0, 1, 2, 5, 8)] == [[], [1], [1, 2], [1, 2, 4, 5], [1, 2, 4, 8]]
