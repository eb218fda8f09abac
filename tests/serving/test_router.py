"""The real router, started as the fleet starts it, before engines of no model: where chunks of a group go."""

import asyncio
import os
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import aiohttp
import pytest

from mem_agent.agents.records import TurnKind, TurnRequest
from mem_agent.rollout_client import Dialect, Endpoint, How, RouterClient
from mem_agent.serving.control import Server
from mem_agent.serving.servers import router_command, router_environment
from mem_agent.system.processes import ChildProcess, wait_until_healthy
from mem_agent.system.server_url import free_ports
from mem_agent.tests.helpers.fake_router import FakeRouter, running

GROUPS, SIBLINGS, CHUNKS = 8, 4, 6


@asynccontextmanager
async def served(folder, *engines):
    """A client of the router with these engines, which run."""
    port, metrics = free_ports(2)
    command = router_command(port, metrics)
    child = ChildProcess("router", command, router_environment(os.environ), folder / "router.log")
    async with AsyncExitStack() as stack:
        stack.callback(child.stop, 0.0)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        admin = Server(f"http://127.0.0.1:{port}", session)
        await wait_until_healthy(child, partial(admin.answers, "/liveness"), 60.0)
        for engine in engines:
            await admin.call("POST", f"/add_worker?url={engine.url}")
        client = RouterClient(Endpoint(Dialect.VLLM, admin.url), 256)
        stack.push_async_callback(client.close)
        yield client


async def trajectory(client, group):
    """What ``rollout.generate`` sends, without a tokenizer."""
    with client.trajectory(group, SIBLINGS) as session:
        for chunk in range(CHUNKS):
            await session.sample([TurnRequest(TurnKind.MEMORY, [chunk, 7], 9, shared=1)], chunk, How(sampling={}))


def trajectories(client):
    return [asyncio.ensure_future(trajectory(client, f"group-{i // SIBLINGS}")) for i in range(GROUPS * SIBLINGS)]


@pytest.mark.asyncio
async def test_siblings_of_a_chunk_meet_and_an_engine_that_falls_behind_is_left(tmp_path):
    stuck, quick = (FakeRouter(default=[8, 2], delay=0.2) for _ in range(2))
    async with (running(stuck), running(quick), served(tmp_path, stuck, quick) as client,
                aiohttp.ClientSession() as session):
        await session.post(f"{stuck.url}/pause")
        reading = trajectories(client)
        # A key of the quick engine ends after the next one has come, so a tie sends a few more groups to the other.
        async with asyncio.timeout(60):
            while sum(one.done() for one in reading) < 2 * SIBLINGS:
                await asyncio.sleep(0.01)
        assert GROUPS // 2 <= len(set(stuck.keys)) <= GROUPS - 2
        assert len(set(quick.keys)) >= 2 * CHUNKS
        await session.post(f"{stuck.url}/resume")
        await asyncio.gather(*reading)
    assert not set(stuck.keys) & set(quick.keys), "the siblings of a chunk are read by one engine"
    assert sorted(Counter(stuck.keys + quick.keys).values()) == [SIBLINGS] * GROUPS * CHUNKS
