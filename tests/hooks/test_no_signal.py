"""A run whose groups all earn the same says what the policy replied, why that is worth nothing, and what to try."""

from types import SimpleNamespace

import pytest

from mem_agent.hooks.host import HostArgs
from mem_agent.hooks.no_signal import watch
from mem_agent.tests.helpers import samples


def host(folder, **settings):
    return HostArgs(SimpleNamespace(mem_agent={"SAVE_PATH": str(folder), **settings}))


def rollout_of(*rewards, response="The key was red.", status="completed"):
    """Groups of two."""
    return [samples.trajectory(samples.turns_of((2,)), status, reward=reward,
                               group_index=number // 2, prompt="Which key?", label="red", response=response)
            for number, reward in enumerate(rewards)]


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize(("fields", "told"), [
    ({}, ["Which key?", "red", "The key was red.", "read as ''", "LOSS=sft", "harder rows"]),
    ({"response": "\\boxed{blue}"}, ["read as 'blue'"]),
    ({"status": "truncated"}, ["truncated", "MEM_MAX_FINAL"]),
])
def test_three_rollouts_of_equal_rewards_are_told_once(fields, told, tmp_path, caplog):
    for _ in range(5):
        watch(host(tmp_path), rollout_of(0.0, 0.0, 0.0, 0.0, **fields))
    (line,) = warnings(caplog)
    assert all(text in line for text in told)


def test_one_group_of_unlike_rewards_is_enough_and_failures_say_nothing(tmp_path, caplog):
    for rewards in ((0, 0, 0, 0), (0, 0, 0, 0), (1, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0)):
        watch(host(tmp_path), rollout_of(*rewards))
        watch(host(tmp_path), [samples.trajectory(status="failed", failure="connection", reward=0.0, group_index=0)])
    assert not warnings(caplog)
