"""The client behind the real SGLang router, started as slime starts it: which requests meet, what faults become."""

import asyncio
import os
import sys
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest

from mem_agent import rollout
from mem_agent.agents.records import FailureKind, Generation, StopReason, TurnFailed
from mem_agent.hooks.sample import Sample
from mem_agent.rollout_client import Dialect, Endpoint, How, RouterClient, close_clients
from mem_agent.system.processes import ChildProcess, wait_until_healthy
from mem_agent.system.server_url import free_ports
from mem_agent.tests.helpers.fake_router import log_probs_of
from mem_agent.tests.helpers.fake_sglang import CONTEXT, FakeWorker, working
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

# slime relies on its own health checks and switches the router's off.
FLAGS = ("--disable-circuit-breaker", "--disable-health-check", "--balance-abs-threshold", "10",
         "--balance-rel-threshold", "1.2", "--log-level", "warn",
         "--policy", "manual", "--assignment-mode", "min_load")
SAMPLING = {"temperature": 0.7, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1, "min_new_tokens": 1,
            "stop": ["END"], "stop_token_ids": [2], "seed": 2**31 - 1}


def start_router(folder: Path) -> tuple[ChildProcess, str]:
    """The router without workers, already answering, and its address; the caller stops it."""
    port, prometheus_port = free_ports(2)
    command = [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port),
               "--prometheus-port", str(prometheus_port), *FLAGS]
    child = ChildProcess("sglang-router", command, os.environ, folder / "router.log")
    url = f"http://127.0.0.1:{port}"
    try:
        asyncio.run(wait_until_healthy(child, lambda: answers(f"{url}/liveness"), 60.0))
    except BaseException:
        child.stop(0.0)
        raise
    return child, url


async def answers(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as reply:
            return reply.status == 200
    except aiohttp.ClientError:
        return False


async def worker_ids(session: aiohttp.ClientSession) -> dict[str, str]:
    async with session.get("/workers") as reply:
        return {w["url"]: w["id"] for w in (await reply.json())["workers"] if w["is_healthy"]}


async def register(session: aiohttp.ClientSession, url: str) -> None:
    """By the calls slime makes, as ``unregister``."""
    async with session.post("/workers", json={"url": url, "worker_type": "regular"}) as reply:
        assert reply.status == 202, await reply.text()
    while url not in await worker_ids(session):
        await asyncio.sleep(0.02)


async def unregister(session: aiohttp.ClientSession, url: str) -> None:
    if worker := (await worker_ids(session)).get(url):
        async with session.delete(f"/workers/{worker}") as reply:
            assert reply.status == 202, await reply.text()
    while url in await worker_ids(session):
        await asyncio.sleep(0.02)


@asynccontextmanager
async def fleet(router: str, *workers: FakeWorker):
    """A client and the router's session beside running workers that the router knows; they are removed at the end."""
    client = RouterClient(Endpoint(Dialect.SGLANG, router), 64)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(router))
        stack.push_async_callback(client.close)
        for worker in workers:
            await stack.enter_async_context(working(worker))
            await register(session, worker.url)
            stack.push_async_callback(unregister, session, worker.url)
        yield client, session


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    child, url = start_router(tmp_path_factory.mktemp("router"))
    yield url
    child.stop()


def ask(router: str, worker: FakeWorker, prompt=(5, 6, 7), sampling=SAMPLING) -> Generation:
    async def main():
        async with fleet(router, worker) as (client, _):
            return await client.generate(list(prompt), 9, "group-0", How(sampling=sampling))

    return asyncio.run(main())


def test_requests_and_answers_pass_the_router(router):
    worker = FakeWorker([8, 9, 2])
    generation = ask(router, worker, sampling=SAMPLING | {"custom_params": {"top_p_ids": True}})
    assert generation == Generation([8, 9, 2], log_probs_of([8, 9, 2]), StopReason.STOP, "3", 0)
    assert worker.keys == ["group-0"]
    [request] = worker.requests
    sent, _ = Endpoint(Dialect.SGLANG, "").build_request([5, 6, 7], 9, SAMPLING, "")
    # The router rebuilds requests from the fields it knows. It does not know these two, of which the first concerns
    # text only and the second a patched SGLang.
    lost = {"spaces_between_special_tokens", "custom_params"}
    assert request["sampling_params"] == {n: v for n, v in sent["sampling_params"].items() if n not in lost}
    assert request["input_ids"] == [5, 6, 7] and request["return_logprob"] is True


def test_a_refusal_is_final_and_quotes_the_worker(router):
    worker = FakeWorker([8])
    with pytest.raises(TurnFailed, match="context length") as error:
        ask(router, worker, prompt=[5] * CONTEXT)
    assert error.value.kind is FailureKind.REJECTED and len(worker.requests) == 1


def test_the_groups_of_a_dead_worker_wait_until_the_host_takes_it_out(router):
    dead, alive = FakeWorker([8]), FakeWorker([9])

    async def main():
        async with fleet(router, alive) as (client, session):
            async with working(dead):
                await register(session, dead.url)
                keys = [f"doomed-{i}" for i in range(16)]
                await asyncio.gather(*(client.generate([5], 9, key, How(sampling={})) for key in keys))
            waiting = asyncio.create_task(client.generate([5], 9, dead.keys[0], How(sampling={})))
            await asyncio.sleep(0.2)  # the first attempt has failed
            await unregister(session, dead.url)
            return await waiting

    assert asyncio.run(main()).token_ids == [9]


def test_siblings_of_a_chunk_meet_on_one_worker(router, checkpoint):
    reply = make_tokenizer().encode("red<|im_end|>", add_special_tokens=False)
    workers = [FakeWorker(reply), FakeWorker(reply)]
    host, _, port = router.removeprefix("http://").partition(":")
    settings = {"MEM_CHUNK_TOKENS": 4, "MEM_MAX_MEMORY": 8, "MEM_MAX_FINAL": 16}
    args = SimpleNamespace(hf_checkpoint=checkpoint, sglang_router_ip=host, sglang_router_port=int(port),
                           sglang_context_length=CONTEXT, mem_agent=settings)
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_new_tokens": 999, "stop": None,
                "stop_token_ids": None, "skip_special_tokens": False, "no_stop_trim": True}

    async def main():
        workers[0].crowd = workers[1].crowd = asyncio.Barrier(8)
        metadata = {"context": "QWZRXYUJ", "ground_truth": ["red"]}
        siblings = (Sample(prompt="who?", index=i, group_index=100 + i // 4, metadata=metadata) for i in range(8))
        try:
            async with fleet(router, *workers):
                return await asyncio.gather(*(rollout.generate(args, one, sampling) for one in siblings))
        finally:
            await close_clients()

    done = asyncio.run(main())
    assert [s.status for s in done] == [Sample.Status.COMPLETED] * 8 and {s.response for s in done} == {"red"}
    assert all(s.weight_versions == ["3"] and len(s.train_metadata["turns"]) == 3 for s in done)
    assert all(t["log_probs"] == log_probs_of(reply) for s in done for t in s.train_metadata["turns"])
    asked = Counter(workers[0].keys + workers[1].keys)
    assert sorted(asked.values()) == [4] * 6, "four siblings to each of two groups' two chunks and answer"
    assert Counter(key.split("/")[0] for key in asked) == {"group-100": 3, "group-101": 3}
    assert not set(workers[0].keys) & set(workers[1].keys)
