"""The client behind the real SGLang router, started as slime starts it: which requests meet, what faults become."""

import asyncio
import os
import sys
from collections import Counter, defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest

from mem_agent import rollout, rollout_client
from mem_agent.agents.records import FailureKind, Generation, StopReason, TurnFailed
from mem_agent.hooks.sample import Sample
from mem_agent.rollout_client import Dialect, Endpoint, How, RouterClient, close_clients
from mem_agent.system.ports import free_ports
from mem_agent.system.processes import ChildProcess, wait_until_healthy
from mem_agent.tests.helpers.fake_router import log_probs_of
from mem_agent.tests.helpers.fake_sglang import CONTEXT, FakeWorker, working
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

# slime relies on its own health checks and switches the router's off.
SLIME_FLAGS = ("--disable-circuit-breaker", "--disable-health-check", "--balance-abs-threshold", "10",
               "--balance-rel-threshold", "1.2", "--log-level", "warn")
STICKY = ("--policy", "manual", "--assignment-mode", "min_load")
SAMPLING = {"temperature": 0.7, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1, "min_new_tokens": 1,
            "stop": ["END"], "stop_token_ids": [2], "seed": 2**31 - 1}


def start_router(folder: Path, flags: tuple[str, ...]) -> tuple[ChildProcess, str]:
    """The router without workers, already answering, and its address; the caller stops it."""
    port, prometheus_port = free_ports(2)
    command = [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port),
               "--prometheus-port", str(prometheus_port), *SLIME_FLAGS, *flags]
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


@asynccontextmanager
async def registered(router: str, url: str):
    """The worker at ``url`` known to the router; removed at the end, if it still is."""
    async with aiohttp.ClientSession(router) as session:
        await register(session, url)
        try:
            yield
        finally:
            await unregister(session, url)


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
    worker = (await worker_ids(session)).get(url)
    if worker is not None:
        async with session.delete(f"/workers/{worker}") as reply:
            assert reply.status == 202, await reply.text()
    while url in await worker_ids(session):
        await asyncio.sleep(0.02)


@asynccontextmanager
async def fleet(router: str, *workers: FakeWorker):
    async with AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(working(worker))
            await stack.enter_async_context(registered(router, worker.url))
        yield


@asynccontextmanager
async def client_of(router: str):
    client = RouterClient(Endpoint(Dialect.SGLANG, router), 64)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture(scope="module")
def sticky_router(tmp_path_factory):
    child, url = start_router(tmp_path_factory.mktemp("sticky"), STICKY)
    yield url
    child.stop()


@pytest.fixture(scope="module")
def default_router(tmp_path_factory):
    child, url = start_router(tmp_path_factory.mktemp("default"), ())
    yield url
    child.stop()


def ask(router: str, worker: FakeWorker, prompt=(5, 6, 7), budget=9, sampling=SAMPLING) -> Generation:
    async def main():
        async with fleet(router, worker), client_of(router) as client:
            return await client.generate(list(prompt), budget, "group-0", How(sampling=sampling))

    return asyncio.run(main())


def check_request_and_answer(router: str) -> None:
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


def test_requests_and_answers_pass_the_sticky_router(sticky_router):
    check_request_and_answer(sticky_router)


def test_requests_and_answers_pass_the_default_router(default_router):
    check_request_and_answer(default_router)


def workers_by_key(router: str) -> list[set[int]]:
    """Which workers each of eight groups of four siblings met, all in flight at once."""
    workers = [FakeWorker([8]), FakeWorker([8])]

    async def main():
        workers[0].crowd = workers[1].crowd = asyncio.Barrier(8 * 4)
        async with fleet(router, *workers), client_of(router) as client:
            work = (client.generate([5, 6, g], 9, f"group-{g}", How(sampling={})) for g in range(8) for _ in range(4))
            await asyncio.gather(*work)

    asyncio.run(main())
    met = defaultdict(set)
    for number, worker in enumerate(workers):
        for key in worker.keys:
            met[key].add(number)
    return list(met.values())


def test_siblings_meet_one_worker_and_groups_share_the_workers(sticky_router):
    met = workers_by_key(sticky_router)
    assert all(len(workers) == 1 for workers in met) and len(met) == 8
    assert {0} in met and {1} in met


def failure(router: str, worker: FakeWorker, **request) -> TurnFailed:
    with pytest.raises(TurnFailed) as error:
        ask(router, worker, **request)
    return error.value


def test_a_refusal_is_final_and_quotes_the_worker(sticky_router):
    worker = FakeWorker([8])
    error = failure(sticky_router, worker, prompt=[5] * CONTEXT)
    assert error.kind is FailureKind.REJECTED and "context length" in str(error)
    assert len(worker.requests) == 1


def test_without_workers_a_turn_fails_as_the_servers_error(sticky_router):
    async def main():
        async with client_of(sticky_router) as client:
            await client.generate([5], 9, "group-0", How(sampling={}))

    with pytest.raises(TurnFailed, match=r"HTTP 503.*no_available_workers") as error:
        asyncio.run(main())
    assert error.value.kind is FailureKind.SERVER_ERROR


def test_the_groups_of_a_dead_worker_fail_until_the_host_takes_it_out(sticky_router, monkeypatch):
    dead, alive = FakeWorker([8]), FakeWorker([9])

    async def main():
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(fleet(sticky_router, alive))
            client = await stack.enter_async_context(client_of(sticky_router))
            async with working(dead):
                await stack.enter_async_context(registered(sticky_router, dead.url))
                keys = [f"doomed-{i}" for i in range(16)]
                await asyncio.gather(*(client.generate([5], 9, key, How(sampling={})) for key in keys))
                key = dead.keys[0]
            with pytest.raises(TurnFailed, match="HTTP 500") as error:
                await client.generate([5], 9, key, How(sampling={}))
            assert error.value.kind is FailureKind.SERVER_ERROR
            monkeypatch.setattr(rollout_client, "RETRIES", 5)
            waiting = asyncio.create_task(client.generate([5], 9, key, How(sampling={})))
            await asyncio.sleep(0.2)  # the first attempt has failed
            async with aiohttp.ClientSession(sticky_router) as session:
                await unregister(session, dead.url)
            assert (await waiting).token_ids == [9]

    asyncio.run(main())


def trajectory(router: str, checkpoint: str, *siblings: Sample):
    host, _, port = router.removeprefix("http://").partition(":")
    settings = {"MEM_CHUNK_TOKENS": 4, "MEM_MAX_MEMORY": 8, "MEM_MAX_FINAL": 16}
    args = SimpleNamespace(hf_checkpoint=checkpoint, sglang_router_ip=host, sglang_router_port=int(port),
                           sglang_context_length=CONTEXT, mem_agent=settings)
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_new_tokens": 999, "stop": None,
                "stop_token_ids": None, "skip_special_tokens": False, "no_stop_trim": True,
                "spaces_between_special_tokens": False}
    return asyncio.gather(*(rollout.generate(args, one, sampling) for one in siblings))


def sibling(index: int, group: int) -> Sample:
    metadata = {"context": "QWZRXYUJ", "ground_truth": ["red"]}
    return Sample(prompt="who?", index=index, group_index=group, metadata=metadata)


def test_siblings_of_a_chunk_meet_on_one_worker(sticky_router, checkpoint):
    reply = make_tokenizer().encode("red<|im_end|>", add_special_tokens=False)
    workers = [FakeWorker(reply), FakeWorker(reply)]

    async def main():
        workers[0].crowd = workers[1].crowd = asyncio.Barrier(8)
        try:
            async with fleet(sticky_router, *workers):
                return await trajectory(sticky_router, checkpoint, *(sibling(i, 100 + i // 4) for i in range(8)))
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


def test_an_abort_order_to_the_worker_ends_the_trajectory(sticky_router, checkpoint):
    worker = FakeWorker(make_tokenizer().encode("red<|im_end|>", add_special_tokens=False), held=(1,))

    async def main():
        try:
            async with fleet(sticky_router, worker), aiohttp.ClientSession() as session:
                running = asyncio.ensure_future(trajectory(sticky_router, checkpoint, sibling(0, 200)))
                while len(worker.requests) < 2:
                    await asyncio.sleep(0.01)
                statuses = []
                for url in (sticky_router, worker.url):  # the router has no such path
                    async with session.post(f"{url}/abort_request", json={"abort_all": True}) as reply:
                        statuses.append(reply.status)
                return statuses, (await running)[0]
        finally:
            await close_clients()

    statuses, done = asyncio.run(main())
    assert statuses == [404, 200]
    assert done.status is Sample.Status.ABORTED and done.remove_sample and len(worker.requests) == 2
