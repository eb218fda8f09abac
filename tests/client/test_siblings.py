"""One sibling goes ahead: what is sent once, and that nothing of it can fail, hold up or outlive a trajectory."""

import asyncio

import pytest

from mem_agent.agents.records import TurnKind, TurnRequest
from mem_agent.client import siblings
from mem_agent.client.siblings import Ahead, turn_key
from mem_agent.hooks.record import Record
from mem_agent.tests.helpers.fake_router import FakeRouter
from mem_agent.tests.hooks.test_rollout import checkpoint, encode, run, sample  # noqa: F401 - a fixture

GROUP = {"n_samples_per_prompt": 4}


def request(ids, shared):
    return TurnRequest(TurnKind.MEMORY, ids, 8, shared)


def test_a_key_is_that_of_the_group_and_of_what_is_shared():
    keys = [turn_key("g", request(*one)) for one in (([1, 2, 3], 2), ([1, 2, 9], 2), ([1, 7, 3], 2), ([1, 2, 3], 3))]
    assert keys[0] == keys[1] and len(set(keys)) == 3
    assert turn_key("h", request([1, 2, 3], 2)) != keys[0]
    assert turn_key("g", request([1, 2, 3], 0)) == "g"  # an agent that does not say


async def _follow(ahead, log, send, names=("a", "b", "c")):
    async def one(name):
        with ahead.trajectory("g"):
            led = await ahead.follow("g", "g/1", send)
            log.append((name, led))
            await asyncio.sleep(0)

    return [asyncio.ensure_future(one(name)) for name in names]


def test_one_leads_and_the_others_wait_until_it_is_answered():
    async def main():
        ahead, log, answered, sent = Ahead(), [], asyncio.Event(), []

        async def send():
            sent.append(1)
            await answered.wait()

        tasks = await _follow(ahead, log, send)
        await asyncio.sleep(0.01)
        assert log == [] and sent == [1]
        answered.set()
        await asyncio.gather(*tasks)
        assert log == [("a", True), ("b", False), ("c", False)] and sent == [1]
        assert len(ahead) == 0

    asyncio.run(main())


def test_followers_of_a_leader_that_fails_or_is_cancelled_go_on():
    async def main(cancel):
        ahead, log = Ahead(), []

        async def send():
            await asyncio.sleep(0.01)
            raise OSError("gone")

        tasks = await _follow(ahead, log, send)
        await asyncio.sleep(0)
        if cancel:
            tasks[0].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError) is cancel
        assert {name for name, _ in log} == set("bc" if cancel else "abc") and len(ahead) == 0

    for cancel in (False, True):
        asyncio.run(main(cancel))


def test_the_last_trajectory_of_a_group_takes_what_was_sent_with_it():
    async def main():
        ahead, log, ended = Ahead(), [], []

        async def send():
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(1)

        tasks = await _follow(ahead, log, send)
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)
        assert ended == [1] and len(ahead) == 0 and log == []

    asyncio.run(main())


def group(checkpoint, router, monkeypatch, **settings):  # noqa: F811
    monkeypatch.setattr(siblings, "WORTH_TOKENS", 1)
    monkeypatch.setattr("mem_agent.rollout.WORTH_TOKENS", 1)
    dialect = settings.pop("dialect", "sglang")
    return run(router, checkpoint, *(sample(index=i) for i in range(4)), settings=settings, dialect=dialect, **GROUP)


def ahead_of(router):
    return [r for r in router.requests if r["sampling_params"].get("max_new_tokens") == 1]


def test_sglang_is_sent_each_chunk_once_before_the_siblings_ask(checkpoint, monkeypatch):  # noqa: F811
    router = FakeRouter(default=encode("x"), delay=0.01)
    done = group(checkpoint, router, monkeypatch)
    sent = ahead_of(router)
    assert len(sent) == 3 and len(router.requests) == 3 + 4 * 3  # two chunks and the answer
    for one in sent:
        ids = one["input_ids"]
        assert sum(r["input_ids"][: len(ids)] == ids for r in router.requests if r not in sent) == 4
    records = [Record.of(s) for s in done]
    assert sum(r.counts["warmed_tokens"] for r in records) == sum(len(r["input_ids"]) for r in sent)
    assert [len(r.turns) for r in records] == [3] * 4  # what went ahead is no turn


def test_a_failed_request_ahead_fails_nothing(checkpoint, monkeypatch):  # noqa: F811
    def default(body):
        return 400 if body["sampling_params"]["max_new_tokens"] == 1 else encode("x")

    done = group(checkpoint, FakeRouter(default=default), monkeypatch)
    assert {s.status.value for s in done} == {"completed"}


@pytest.mark.parametrize(
    "settings",
    [{"dialect": "vllm"}, {"MEM_LEAD": "never"}, {"MEM_ROUTING": "trajectory"}],
)
def test_nothing_goes_ahead_where_it_saves_nothing(checkpoint, monkeypatch, settings):  # noqa: F811
    router = FakeRouter(default=encode("x"))
    done = group(checkpoint, router, monkeypatch, **settings)
    assert len(router.requests) == 12 and all("warmed_tokens" not in Record.of(s).counts for s in done)
