"""REWARD=answer_utility through the reward hook, with a chat endpoint that knows answers from gold sessions alone."""

import asyncio
import re
from types import SimpleNamespace

import pytest

from mem_agent import rollout
from mem_agent.hooks import rewards
from mem_agent.hooks.host import HostArgs
from mem_agent.hooks.metrics import rollout_metrics
from mem_agent.hooks.sample import Record
from mem_agent.tests.helpers.fake_router import chat_model, running_beside
from mem_agent.tests.helpers.ranked_rows import naming, ranked, stored_rows

KNOWN = re.compile(r"I live in (\w+)\.")


def asked(body):
    """The user message of a request."""
    return body["messages"][-1]["content"]


def reader(body):
    """The answer where the prompt shows it; nothing otherwise."""
    found = KNOWN.search(asked(body))
    return f"Let me see. <answer>{found[1] if found else 'unknown'}</answer>"


@pytest.fixture
def chat():
    rewards.RUNS.clear()
    with running_beside(chat_model(reader)) as server:
        yield server


@pytest.fixture
def run(tmp_path, chat):
    given = {"AGENT": "chat", "TASK": "rank_sessions", "REWARD": "answer_utility", "ANSWER_URL": chat.url,
             "TRAIN_DATA": str(tmp_path / "train.jsonl"), "MEM_MAX_FINAL": 64}
    return lambda args="": SimpleNamespace(
        mem_agent=given | {"REWARD_ARGS": f"model=served {args}"}, save=str(tmp_path / "run"))


@pytest.fixture
def row(tmp_path):
    return stored_rows(tmp_path / "train.jsonl", [3, 11])[0]


def score(args, samples, number=0):
    async def all_of_them():
        return await asyncio.gather(*(rollout.reward_func(args, sample) for sample in samples))

    for sample, reward in zip(samples, asyncio.run(all_of_them()), strict=True):
        sample.reward = reward
    rewards.apply(HostArgs(args), samples, number)
    return [sample.reward for sample in samples]


PLACES = {1: 1.0, 2: 0.6309, 3: 0.5, 4: 0.3869, 5: 0.3869, 6: 0.3155, 8: 0.3155, 9: 0.2891, 10: 0.2891}


def test_a_ranking_is_worth_what_the_place_of_the_gold_session_gives(run, row):
    samples = [ranked(row, naming(3, place=place), place, 0) for place in PLACES]
    assert score(run(), samples) == pytest.approx(list(PLACES.values()), abs=5e-5)


def test_a_failed_call_is_a_missing_value_and_its_key_is_in_no_record(run, row, chat, monkeypatch, caplog):
    monkeypatch.setenv("ANSWER_KEY", "secret-key-12345")
    chat.key, chat.default = "secret-key-12345", lambda body: 400 if KNOWN.search(asked(body)) else "x"
    samples, args = [*(ranked(row, naming(3, place=p), p, 0) for p in (1, 2)), ranked(row, "no", 3, 0)], run()
    assert score(args, samples) == [0.0, 0.0, -2.0]
    assert [sample.status.value for sample in samples] == ["failed", "failed", "completed"]
    assert all(sample.remove_sample for sample in samples[:2])
    assert rollout_metrics(samples)["failed/answer_model"] == 2
    assert chat.headers[0]["Authorization"] == "Bearer secret-key-12345"
    assert "secret" not in f"{samples} {caplog.text} {args} {rewards.RUNS}"


def test_the_warm_up_asks_nobody_and_ends_by_the_rollouts(run, row, chat):
    args = run("beta=2 warmup=2 anneal=2")

    def parts(number):
        """Of a ranking with gold second."""
        sample = ranked(row, naming(3, place=2), number, number)
        score(args, [sample], number)
        return dict(Record.of(sample).reward_parts)

    ndcg = 0.6309
    assert [parts(0), parts(1)] == [{"ranking": pytest.approx(2 * ndcg, abs=1e-4)}] * 2 and chat.requests == []
    assert [parts(2), parts(3), parts(4)] == [pytest.approx(one, abs=1e-4) for one in (
        {"answer_utility": ndcg, "ranking": 2 * ndcg}, {"answer_utility": ndcg, "ranking": ndcg},
        {"answer_utility": ndcg})]
