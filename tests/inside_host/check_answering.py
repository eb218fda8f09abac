"""A frozen chat model beside the policy: the host's own routes to it, and a reward through the host's reward call."""

import asyncio
from types import SimpleNamespace

import pytest

from mem_agent.config import Config, ConfigError
from mem_agent.hooks import batch_reward, refusals
from mem_agent.hooks.host import ANSWERING, HostArgs
from mem_agent.hooks.refusals import AllRefused
from mem_agent.tests.helpers.fake_chat import FakeChat, chat_server
from mem_agent.tests.helpers.ranked_rows import naming, ranked, stored_rows
from mem_agent.tests.inside_host.host import DIALECT, Sample, loop, module


def host_args(tmp_path, port, **settings):
    """As the host leaves them once its servers have started: a router for each model of its file."""
    config = Config(agent="chat", task="rank_sessions", reward="answer_utility", answer_ckpt="served",
                    train_data=str(tmp_path / "train.jsonl"), save_path=str(tmp_path / "run"), answer_retries=0,
                    **settings)
    routers = {"policy": ("127.0.0.1", 9), ANSWERING: ("127.0.0.1", port)}
    return SimpleNamespace(**{
        "mem_agent": config.to_mapping(), "custom_rm_path": "mem_agent.rollout.reward_func", "rm_type": None,
        "reward_key": None, "save": config.save_path, "prompt_data": config.train_data,
        f"{DIALECT}_router_ip": "127.0.0.1", f"{DIALECT}_router_port": 9, f"{DIALECT}_model_routers": routers,
    })


def test_the_hosts_route_to_the_frozen_model_is_ours(tmp_path):
    args = host_args(tmp_path, 4321)
    theirs = loop.get_model_url(args, ANSWERING, "/v1/chat/completions")
    assert theirs == f"{HostArgs.of(args).answer_url}/v1/chat/completions" == "http://127.0.0.1:4321/v1/chat/completions"


def in_host(sample):
    fields = ("response", "prompt", "label", "metadata", "train_metadata", "response_length")
    return Sample(index=0, group_index=sample.group_index, status=Sample.Status.COMPLETED,
                  **{name: getattr(sample, name) for name in fields})


def test_a_ranking_is_scored_by_it_through_the_hosts_reward_call(tmp_path):
    (row,) = stored_rows(tmp_path / "train.jsonl", [3])
    batch_reward._runs.clear()

    def answer(body, number):
        return "<answer>Lyon0</answer>" if "I live in Lyon0" in body["messages"][-1]["content"] else "unknown"

    with chat_server(FakeChat(answer)) as chat:
        theirs = in_host(ranked(row, naming(3, place=2), 0, 0))
        reward = asyncio.run(module("rollout.rm_hub").async_rm(host_args(tmp_path, chat.port), theirs))
        assert reward == pytest.approx(0.6309, abs=5e-5) and len(chat.bodies) == 7


def test_a_rollout_that_it_refuses_whole_ends_through_the_hosts_reward_call(tmp_path):
    (row,) = stored_rows(tmp_path / "train.jsonl", [3])
    batch_reward._runs.clear()
    refusals._streaks.clear()
    groups = [[in_host(ranked(row, naming(3), 0, group)) for _ in range(2)] for group in range(2)]
    with chat_server(FakeChat(lambda body, number: 400)) as chat:
        args = host_args(tmp_path, chat.port, rollout_batch_size=2, n_samples_per_prompt=2)
        with pytest.raises(AllRefused, match="4 trajectories"):
            asyncio.run(rewarded(args, groups))
    assert all(sample.status is Sample.Status.FAILED for group in groups for sample in group)


async def rewarded(args, groups):
    for group in groups:
        for sample in group:
            sample.reward = await module("rollout.rm_hub").async_rm(args, sample)


def test_the_policy_never_answers_in_its_place(tmp_path):
    args = host_args(tmp_path, 1)
    delattr(args, f"{DIALECT}_model_routers")
    batch_reward._runs.clear()
    with pytest.raises(ConfigError, match="serves no second model"):
        batch_reward.reward_for(HostArgs.of(args))
