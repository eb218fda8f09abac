"""The host's reward calls with our reward hook: one sample, many, none, by key, and by a sample's own path."""

import asyncio
from types import SimpleNamespace

import pytest

from mem_agent.tests.inside_host.host import Sample, module

rm_hub = module("rollout.rm_hub")


def args(**fields):
    hook = "mem_agent.rollout.reward_func"
    return SimpleNamespace(**{"custom_rm_path": hook, "rm_type": None, "reward_key": None} | fields)


def sample(answer="\\boxed{red}", **fields):
    return Sample(index=0, prompt="?", response=answer, metadata={"ground_truth": ["red", "crimson"]}, **fields)


def test_one_sample_is_scored():
    assert asyncio.run(rm_hub.async_rm(args(), sample("so \\boxed{Crimson}"))) == 1.0
    assert asyncio.run(rm_hub.async_rm(args(), sample("red"))) == 0.0


@pytest.mark.parametrize("answers", [[], ["\\boxed{red}"], ["\\boxed{red}", "", "\\boxed{blue}"]])
def test_a_list_is_scored_in_order(answers):
    rewards = asyncio.run(rm_hub.batched_async_rm(args(), [sample(a) for a in answers]))
    assert rewards == [float("red" in a) for a in answers]


def test_a_reward_key_gives_what_the_host_looks_up():
    keyed, one = args(reward_key="score"), sample()
    one.reward = asyncio.run(rm_hub.async_rm(keyed, one))
    assert one.get_reward_value(keyed) == 1.0
    many = [sample(), sample("")]
    for each, reward in zip(many, asyncio.run(rm_hub.batched_async_rm(keyed, many)), strict=True):
        each.reward = reward
    assert [each.get_reward_value(keyed) for each in many] == [1.0, 0.0]


def test_an_evaluation_data_sets_own_path_is_honoured():
    one = sample(custom_rm_path="mem_agent.rollout.reward_func")
    assert asyncio.run(rm_hub.async_rm(args(custom_rm_path=None), one)) == 1.0
    assert asyncio.run(rm_hub.batched_async_rm(args(custom_rm_path=None), [one, one])) == [1.0, 1.0]


def test_a_label_is_enough():
    labelled = Sample(index=0, response="\\boxed{4}", label="4", metadata={})
    assert asyncio.run(rm_hub.async_rm(args(), labelled)) == 1.0
