"""The length reward: its table, its edges, and what it replaces."""

import asyncio
from math import cos, pi
from types import SimpleNamespace

import pytest

from mem_agent import rollout
from mem_agent.config import Config
from mem_agent.hooks.batch_reward import load_reward
from mem_agent.hooks.record import Record
from mem_agent.rewards.cosine_length import cosine_by_length
from mem_agent.rewards.reward import Answered
from mem_agent.tests.helpers.samples import trajectory, turns_of

# tokens of 200 -> right, wrong; 50 tokens: .5 + .25 * (1 + cos(pi / 4)) = .9268
VECTORS = [
    (0, 1.0, -1.0), (50, 0.5 + 0.25 * (1 + cos(pi / 4)), -0.5 - 0.25 * (1 + cos(pi / 4))), (100, 0.75, -0.75),
    (150, 0.5 + 0.25 * (1 - cos(pi / 4)), -0.5 - 0.25 * (1 - cos(pi / 4))), (200, 0.5, -0.5), (201, 0.5, -0.5),
    # Twice the limit is worth what none is where nothing is clamped.
    (400, 0.5, -0.5), (10**9, 0.5, -0.5),
]


@pytest.mark.parametrize(("tokens", "right", "wrong"), VECTORS)
def test_golden_values(tokens, right, wrong):
    assert cosine_by_length(tokens, 200, 1.0, 0.5) == pytest.approx(right)
    assert cosine_by_length(tokens, 200, -1.0, -0.5) == pytest.approx(wrong)


def parts(args, accuracy, tokens, given, most=200):
    reward = load_reward(Config(reward="cosine", reward_args=args))
    answer = Answered("q?", ("18",), {}, "", given, accuracy,
                      counts={"response_tokens": tokens, "max_final_tokens": most})
    return asyncio.run(reward.parts(answer))


def test_it_is_added_to_the_tasks_parts_or_stands_for_the_answer():
    given = {"correct": 1.0, "tags": 0.05}
    assert parts("", 1.0, 100, given) == {"correct": 1.0, "tags": 0.05, "length": 0.75}
    assert parts("in_place=1", 1.0, 100, given) == {"tags": 0.05, "length": 0.75}
    assert parts("in_place=1", 0.0, 100, {"answer": 0.0}) == {"length": -0.75}  # of a task without such a part


def test_the_limit_is_the_final_turns_unless_one_is_set():
    assert parts("", 0.0, 100, {}, most=100) == {"length": -0.5}
    assert parts("max_tokens=200", 0.0, 100, {}, most=100) == {"length": -0.75}


def test_its_values_are_settings():
    args = "right_short=3 right_long=1 wrong_short=-5 wrong_long=-4"
    assert parts(args, 1.0, 0, {}) == {"length": 3.0} and parts(args, 1.0, 200, {}) == {"length": 1.0}
    assert parts(args, 0.0, 0, {}) == {"length": -5.0} and parts(args, 0.0, 200, {}) == {"length": -4.0}


def test_a_rollout_is_rewarded_by_its_tokens_and_the_budget_of_its_final_turn():
    settings = {"TASK": "gsm8k", "REWARD": "cosine", "MEM_MAX_FINAL": 20}
    for reply, length in (("<answer>18</answer>", 0.75), ("<answer>17</answer>", -0.75)):
        done = trajectory(turns_of([2]), reward=None, response=reply, prompt="q?", metadata={"ground_truth": ["18"]})
        done.train_metadata["counts"] |= {"response_tokens": 10}
        asyncio.run(rollout.reward_func(SimpleNamespace(mem_agent=settings), done))
        assert Record.of(done).reward_parts["length"] == pytest.approx(length)
        assert "max_final_tokens" not in Record.of(done).counts
