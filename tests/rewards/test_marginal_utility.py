"""R_ans: golden values of arXiv 2603.03379 (equations 4 and 5, computed by hand), and what holds for all scores."""

import math
import random

import pytest

from mem_agent.rewards.marginal_utility import TIERS, marginal_utility, read_tiers, tier_weights, tiers_for

EVERY = (0, *TIERS)
# name, s_k by tier, R_ans. Weights 1/log2(k_n + 1) - 1/log2(k_{n+1} + 1); of tiers to 8 the last is 1/log2(9) = .3155.
GOLDEN = [
    ("rising, tiers to 8", {0: 0.2, 1: 0.4, 2: 0.5, 3: 0.6, 5: 0.7, 8: 0.75}, 0.3676),
    ("sessions change nothing", dict.fromkeys(EVERY, 1.0), 0.0),
    ("gold first", {k: float(k >= 1) for k in EVERY}, 1.0),
    ("only tier 1 right", {k: float(k == 1) for k in EVERY}, 0.3691),
    ("gold at rank 2", {k: float(k >= 2) for k in EVERY}, 0.6309),
    ("gold at rank 10", {k: float(k >= 10) for k in EVERY}, 0.2891),
    ("sessions destroy the answer", {k: float(k == 0) for k in EVERY}, -1.0),
]


@pytest.mark.parametrize(("name", "scores", "expected"), GOLDEN)
def test_golden_vectors(name, scores, expected):
    assert marginal_utility(scores) == pytest.approx(expected, abs=5e-5), name


def test_weights_of_the_published_tiers():
    assert tier_weights(TIERS) == pytest.approx((0.3691, 0.1309, 0.1131, 0.0714, 0.0264, 0.2891), abs=5e-5)
    assert tier_weights(TIERS[:-1])[-1] == pytest.approx(0.3155, abs=5e-5)


@pytest.mark.parametrize("ranked", range(1, 16))
def test_weights_sum_to_one_and_the_utility_is_bounded(ranked):
    tiers = tiers_for(ranked)
    assert tiers[-1] == min(ranked, 10) and sum(tier_weights(tiers)) == pytest.approx(1.0)
    assert min(tier_weights(tiers)) > 0
    drawn = random.Random(ranked)
    for _ in range(200):
        scores = {tier: drawn.choice([0.0, 1.0, drawn.random()]) for tier in (0, *tiers)}
        by_gains = sum(
            (scores[here] - scores[before]) / math.log2(here + 1)
            for before, here in zip((0, *tiers), tiers, strict=False)
        )
        assert marginal_utility(scores) == pytest.approx(by_gains), "equation 4 and equation 5 are one"
        assert -1.0 - 1e-12 <= marginal_utility(scores) <= 1.0 + 1e-12
        assert marginal_utility(dict.fromkeys(scores, scores[0])) == 0.0


@pytest.mark.parametrize(
    ("ranked", "tiers"),
    [(1, (1,)), (2, (1, 2)), (4, (1, 2, 3, 4)), (6, (1, 2, 3, 5, 6)), (9, (1, 2, 3, 5, 8, 9)), (10, TIERS)],
)
def test_tiers_beyond_a_ranking_fall_together_at_its_end(ranked, tiers):
    assert tiers_for(ranked) == tiers


@pytest.mark.parametrize("text", ["", "2,3", "1,1", "1,3,2", "1,a", "0,1"])
def test_tiers_that_do_not_rise_from_one_are_refused(text):
    with pytest.raises(ValueError, match="expected numbers that rise from 1"):
        read_tiers(text)
    assert read_tiers("1, 2,4") == (1, 2, 4)
