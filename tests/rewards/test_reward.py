"""Rewards of one answer: length, and two rewards as one."""

import asyncio
from math import cos, pi

import pytest

from mem_agent.rewards.reward import (
    Answered,
    CosineLength,
    CosineSettings,
    RewardSettings,
    overlong_cost,
)
from mem_agent.system.plugins import parse_settings

# tokens of 200 -> right, wrong; 50 tokens: .5 + .25 * (1 + cos(pi / 4)) = .9268
LENGTHS = [
    (0, 1.0, -1.0), (50, 0.5 + 0.25 * (1 + cos(pi / 4)), -0.5 - 0.25 * (1 + cos(pi / 4))), (100, 0.75, -0.75),
    (200, 0.5, -0.5), (400, 0.5, -0.5),  # twice the limit is worth what none is where nothing is clamped
]


@pytest.mark.parametrize(("tokens", "right", "wrong"), LENGTHS)
def test_length_along_a_cosine(tokens, right, wrong):
    for accuracy, worth in ((1.0, right), (0.0, wrong)):
        assert parts("", accuracy, {}, tokens=tokens) == {"length": pytest.approx(worth)}


def parts(args, accuracy, given, most=200, tokens=100):
    reward = CosineLength(parse_settings(CosineSettings, args, "REWARD_ARGS"))
    answer = Answered("q?", ("18",), {}, "", given, accuracy,
                      counts={"response_tokens": tokens, "max_final_tokens": most})
    return asyncio.run(reward.parts(answer))


def test_cosine_is_added_to_the_tasks_parts():
    given = {"correct": 1.0, "tags": 0.05}
    assert parts("", 1.0, given) == {"correct": 1.0, "tags": 0.05, "length": 0.75}
    assert parts("", 0.0, {}, most=100) == {"length": -0.5}
    assert parts("max_tokens=200", 0.0, {}, most=100) == {"length": -0.75}


@pytest.mark.parametrize(("tokens", "cost"), [(12288, 0.0), (12289, 2 / 4096), (14336, 1.0), (20000, 2.0)])
def test_a_long_reply_pays_before_it_is_cut(tokens, cost):
    """DAPO's equation 13 with its 16,384 tokens and buffer of 4,096, here with a penalty of 2."""
    settings = parse_settings(CosineSettings, "overlong_buffer=4096 overlong_penalty=2", "REWARD_ARGS")
    assert overlong_cost(settings, tokens, 16384) == cost
    assert overlong_cost(RewardSettings(), tokens, 16384) == 0.0 == overlong_cost(object(), tokens, 16384)
