"""The client behind the real SGLang router, started as slime starts it: which requests meet, what faults become."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import pytest

from mem_agent.agents.records import FailureKind, Generation, StopReason, TurnFailed
from mem_agent.rollout_client import Dialect, Endpoint, How, RouterClient
from mem_agent.serving.control import Server
from mem_agent.system.processes import ChildProcess, wait_until_healthy
from mem_agent.system.server_url import free_ports
from mem_agent.tests.helpers.fake_router import FakeRouter, log_probs_of, running
from mem_agent.tests.serving.test_router import CHUNKS, GROUPS, SIBLINGS, trajectories

# slime relies on its own health checks and switches the router's off.
FLAGS = ("--disable-circuit-breaker", "--disable-health-check", "--balance-abs-threshold", "10",
         "--balance-rel-threshold", "1.2", "--log-level", "warn",
         "--policy", "manual", "--assignment-mode", "min_load")
CONTEXT = 2048
SAMPLING = {"temperature": 0.7, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1, "min_new_tokens": 1,
            "stop": ["END"], "stop_token_ids": [2], "seed": 2**31 - 1}


@contextmanager
def routing(folder: Path) -> Iterator[str]:
    """The address of a router without workers that answers."""
    port, prometheus_port = free_ports(2)
    command = [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port),
               "--prometheus-port", str(prometheus_port), *FLAGS]
    child = ChildProcess("sglang-router", command, os.environ, folder / "router.log")
    url = f"http://127.0.0.1:{port}"
    try:
        asyncio.run(wait_until_healthy(child, lambda: answers(f"{url}/liveness"), 60.0))
        yield url
    finally:
        child.stop()


async def answers(url: str) -> bool:
    async with aiohttp.ClientSession() as session:
        return await Server(url, session).answers("")


async def register(session: aiohttp.ClientSession, url: str) -> None:
    """By the call slime makes; returns when the router sends requests there."""
    async with session.post("/workers", json={"url": url, "worker_type": "regular"}) as reply:
        assert reply.status == 202, await reply.text()
    known: list[str] = []
    while url not in known:
        async with session.get("/workers") as reply:
            known = [worker["url"] for worker in (await reply.json())["workers"] if worker["is_healthy"]]
        await asyncio.sleep(0.02)


@asynccontextmanager
async def client_of(router: str, *workers: FakeRouter):
    """A client beside running workers that the router knows."""
    client = RouterClient(Endpoint(Dialect.SGLANG, router), 64)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(router))
        stack.push_async_callback(client.close)
        for worker in workers:
            await stack.enter_async_context(running(worker))
            await register(session, worker.url)
        yield client


@pytest.fixture
def router(tmp_path):
    with routing(tmp_path) as url:
        yield url


def test_requests_answers_and_refusals_pass_the_router(router):
    worker = FakeRouter([[8, 9, 2], 400])
    sampling = SAMPLING | {"custom_params": {"top_p_ids": True}}

    async def main():
        async with client_of(router, worker) as client:
            given = await client.generate([5, 6, 7], 9, "group-0", How(sampling=sampling))
            with pytest.raises(TurnFailed, match="status 400") as error:
                await client.generate([5], 9, "group-0", How(sampling={}))
            return given, error.value.kind

    given = Generation([8, 9, 2], log_probs_of([8, 9, 2]), StopReason.STOP, "v1", 2)
    assert asyncio.run(main()) == (given, FailureKind.REJECTED) and worker.keys == ["group-0"] * 2
    sent, _ = Endpoint(Dialect.SGLANG, "").build_request([5, 6, 7], 9, SAMPLING, "")
    # The router rebuilds requests from the fields it knows. It does not know these two, of which the first concerns
    # text only and the second a patched SGLang.
    lost, request = {"spaces_between_special_tokens", "custom_params"}, worker.requests[0]
    assert request["sampling_params"] == {n: v for n, v in sent["sampling_params"].items() if n not in lost}
    assert request["input_ids"] == [5, 6, 7] and request["return_logprob"] is True


def test_siblings_of_a_chunk_meet_on_one_worker(router):
    workers = [FakeRouter(default=[8, 2], delay=0.05) for _ in range(2)]

    async def main():
        async with client_of(router, *workers) as client:
            await asyncio.gather(*trajectories(client))

    asyncio.run(main())
    first, second = (worker.keys for worker in workers)
    assert sorted(Counter(first + second).values()) == [SIBLINGS] * GROUPS * CHUNKS
    assert first and second and not set(first) & set(second)
