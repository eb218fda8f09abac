"""A chat model that refuses everything ends the run, in every host; one that refuses a row, or times out, does not."""

import asyncio
from types import SimpleNamespace

import pytest

from mem_agent import rollout
from mem_agent.config import Config
from mem_agent.hooks import batch_reward, refusals
from mem_agent.hooks.metrics import rollout_metrics
from mem_agent.hooks.refusals import AllRefused
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.fake_chat import FakeChat, chat_server
from mem_agent.tests.helpers.patience import HANGS_AFTER_S
from mem_agent.tests.helpers.ranked_rows import naming, ranked, stored_rows

GOOD = naming(3)


@pytest.fixture(autouse=True)
def fresh():
    for state in (batch_reward._runs, refusals._streaks, refusals._waiting):
        state.clear()


@pytest.fixture
def chat():
    with chat_server(FakeChat(lambda body, number: 400)) as server:
        yield server


@pytest.fixture
def args(tmp_path, chat):
    """Rollouts of 2 groups of 2."""

    def make(**settings):
        own = {"answer_url": chat.url, "answer_model": "served", "answer_retries": 0, "answer_timeout": HANGS_AFTER_S,
               "rollout_batch_size": 2, "n_samples_per_prompt": 2, **settings}
        config = Config(agent="chat", task="rank_sessions", reward="answer_utility", save_path=str(tmp_path / "run"),
                        train_data=str(tmp_path / "train.jsonl"), **own)
        return SimpleNamespace(mem_agent=config, save=config.save_path)

    return make


@pytest.fixture
def row(tmp_path):
    return stored_rows(tmp_path / "train.jsonl", [3])[0]


def one(args, row, reply, group):
    sample = ranked(row, reply, 0, group)
    sample.reward = asyncio.run(rollout.reward_func(args, sample))
    return sample


def test_a_rollout_of_refusals_ends_the_run_in_one_line(args, row, chat):
    samples = [one(args(), row, GOOD, group) for group in (0, 0, 1)]
    assert rollout_metrics(samples)["failed/answer_refused"] == 3 and all(s.remove_sample for s in samples)
    with pytest.raises(AllRefused, match=r"refused every request of 4 trajectories.*HTTP 400") as raised:
        one(args(), row, GOOD, 1)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("status", [401, 404])
def test_a_key_or_name_that_stops_working_in_the_middle_ends_it_as_well(args, row, chat, status):
    chat.answer = lambda body, number: "Lyon0"
    one(args(), row, GOOD, 0)
    chat.answer = lambda body, number: status
    row = row | {"question": "Another?"}
    with pytest.raises(AllRefused, match=f"HTTP {status}"):
        for group in (1, 1, 2, 2):
            one(args(), row, GOOD, group)


@pytest.mark.parametrize(("status", "said"), [(400, "every request of 4"), (401, "HTTP 401")])
def test_where_the_host_swallows_what_hooks_raise_the_log_hook_ends_the_run(args, row, chat, status, said):
    """FULLY_ASYNC: groups whose hook raises are dropped, and the rollout would wait for others for ever."""
    chat.answer = lambda body, number: status
    made = args(fully_async=True)
    samples = [one(made, row, GOOD, group) for group in (0, 0, 1, 1)]
    assert {s.status.value for s in samples} == {"failed"}
    with pytest.raises(MemAgentError, match=said):
        rollout.log_rollout(0, made, samples, {}, 1.0)
