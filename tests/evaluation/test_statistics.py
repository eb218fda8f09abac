"""Intervals and tests: by hand on small cases, by simulation on their promise."""

import numpy as np
import pytest

from mem_agent.evaluation.statistics import compare, interval, sign_flip_p

# By hand: of the 2^n sign patterns, the share whose sum is as far from 0 as the one found.
FLIPS = [
    ([1, 1, 1], 2 / 8),
    ([1, -1], 4 / 4),  # found 0: every pattern is as far
    ([1, 1, 0, 0], 2 / 4),  # zeros have no sign
    ([2, 1], 2 / 4),  # +-3 of +-3, +-1
    ([1] * 5 + [-1], 14 / 64),  # |sum| >= 4: no or one minus, and their mirrors: 2 x (1 + 6)
    ([0, 0], 1.0),
    # Drawn. 20 differences of 1, 15 of them up: P(|sum| >= 10) = 2 x P(Binomial(20, 1/2) >= 15) = 2 x 21700 / 2^20.
    ([1] * 15 + [-1] * 5, 2 * 21700 / 2**20),
]


@pytest.mark.parametrize("differences,p", FLIPS)
def test_p_is_the_share_of_sign_patterns_that_are_as_far(differences, p):
    found = sign_flip_p(np.array(differences, dtype=float), np.random.default_rng(0))
    assert found == pytest.approx(p, abs=0.006 if len(differences) > 13 else 1e-9)


@pytest.mark.parametrize("differences,text", [
    ([1.0] * 40, "< 0.0001 (10,000 resamples)"),
    ([1.0] * 3 + [0.0] * 5, "0.2500 (lowest possible)"),
    ([1.0, 1.0, -1.0], "1.0000"),
    ([0.0] * 9, "1.0000 (lowest possible)"),
])
def test_a_p_at_its_floor_says_so(differences, text):
    second = dict(enumerate(differences))
    found = compare(dict.fromkeys(second, 0.0), second)
    assert found.p_text == text


def test_95_percent_of_the_intervals_hold_the_truth():
    rng = np.random.default_rng(7)
    found = [interval((rng.random(128) < 0.8).astype(float), seed=seed, resamples=1000) for seed in range(400)]
    assert 0.92 <= np.mean([one.low <= 0.8 <= one.high for one in found]) <= 0.98


def test_runs_are_compared_on_the_questions_both_have():
    first = {"a": 0.0, "b": 1.0, "c": 0.0, "x": 1.0}
    second = {"a": 1.0, "b": 1.0, "c": 1.0, "y": 0.0}
    found = compare(first, second)
    assert (found.first, found.second) == (pytest.approx(1 / 3), 1.0)
    assert found.difference.n == 3 and found.difference.mean == pytest.approx(2 / 3) and found.p == pytest.approx(0.5)
    assert compare(first, second) == found


@pytest.mark.parametrize(("score", "questions", "low", "high"), [(0.0, 2, 0.0, 0.842), (1.0, 128, 0.972, 1.0)])
def test_equal_scores_do_not_pretend_certainty(score, questions, low, high):
    found = interval([score] * questions, full=1.0)
    assert (found.mean, found.n) == (score, questions)
    assert [found.low, found.high] == pytest.approx([low, high], abs=1e-3)


def test_what_differs_by_rounding_differs_by_nothing():
    found = compare({"a": 0.1 + 0.2}, {"a": 0.3})
    assert (found.difference.mean, found.difference.low, found.difference.high, found.p) == (0.0, 0.0, 0.0, 1.0)
