"""The real router, started as the fleet starts it, before engines of no model: where chunks of a group go."""

import asyncio
import os
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from mem_agent.agents.records import TurnKind, TurnRequest
from mem_agent.rollout_client import Dialect, Endpoint, How, RouterClient
from mem_agent.serving.control import Server
from mem_agent.serving.servers import router_command, router_environment
from mem_agent.system.processes import ChildProcess, wait_until_healthy
from mem_agent.system.server_url import free_ports
from mem_agent.tests.helpers.fake_router import vllm_answer

GROUPS, SIBLINGS, CHUNKS = 8, 4, 6


class Engine:
    """Answers every prompt after ``delay`` seconds, while it ``goes_on``; ``keys`` are those of its requests."""

    def __init__(self, delay):
        self.delay, self.keys = delay, []
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def health(self, _):
        return web.Response()

    async def generate(self, request):
        self.keys.append(request.headers["x-session-id"])
        await self.goes_on.wait()
        await asyncio.sleep(self.delay)
        return web.json_response(vllm_answer([8, 2]))

    async def start(self):
        app = web.Application()
        app.add_routes([web.get("/health", self.health), web.post("/inference/v1/generate", self.generate)])
        self.server = TestServer(app)
        await self.server.start_server(shutdown_timeout=0.01)
        self.url = str(self.server.make_url("")).rstrip("/")


@asynccontextmanager
async def served(folder, *engines):
    """A client of the router with these engines."""
    port, metrics = free_ports(2)
    command = router_command(port, metrics)
    child = ChildProcess("router", command, router_environment(os.environ), folder / "router.log")
    async with AsyncExitStack() as stack:
        stack.callback(child.stop, 0.0)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        admin = Server(f"http://127.0.0.1:{port}", session)
        await wait_until_healthy(child, partial(admin.answers, "/liveness"), 60.0)
        for engine in engines:
            await engine.start()
            stack.push_async_callback(engine.server.close)
            await admin.call("POST", f"/add_worker?url={engine.url}")
        client = RouterClient(Endpoint(Dialect.VLLM, admin.url), 256)
        stack.push_async_callback(client.close)
        yield client


async def trajectory(client, group):
    """What ``rollout.generate`` sends, without a tokenizer."""
    with client.trajectory(group, SIBLINGS) as session:
        for chunk in range(CHUNKS):
            await session.sample([TurnRequest(TurnKind.MEMORY, [chunk, 7], 9, shared=1)], chunk, How(sampling={}))


def trajectories(client, first_group=0):
    groups = [f"group-{first_group + i // SIBLINGS}" for i in range(GROUPS * SIBLINGS)]
    return [asyncio.ensure_future(trajectory(client, group)) for group in groups]


@pytest.mark.asyncio
async def test_siblings_of_a_chunk_meet_and_an_engine_that_falls_behind_is_left(tmp_path):
    stuck, quick = engines = [Engine(0.2), Engine(0.2)]
    stuck.goes_on.clear()
    async with served(tmp_path, *engines) as client:
        reading = trajectories(client)
        # A key of the quick engine ends after the next one has come, so a tie sends a few more groups to the other.
        async with asyncio.timeout(60):
            while sum(one.done() for one in reading) < 2 * SIBLINGS:
                await asyncio.sleep(0.01)
        assert GROUPS // 2 <= len(set(stuck.keys)) <= GROUPS - 2
        assert len(set(quick.keys)) >= 2 * CHUNKS
        stuck.goes_on.set()
        await asyncio.gather(*reading)
    assert not set(stuck.keys) & set(quick.keys), "the siblings of a chunk are read by one engine"
    assert len({*stuck.keys, *quick.keys}) == GROUPS * CHUNKS
    assert len(stuck.keys) + len(quick.keys) == GROUPS * SIBLINGS * CHUNKS


@pytest.mark.asyncio
async def test_engines_of_one_speed_share_the_groups_and_the_keys_of_a_dead_one_move_on(tmp_path):
    first, second = engines = [Engine(0.005), Engine(0.005)]
    async with served(tmp_path, *engines) as client:
        for number in range(2):
            await asyncio.gather(*trajectories(client, number * GROUPS))
        few, many = sorted(len(engine.keys) for engine in engines)
        assert 3 * few > 2 * many, (few, many)
        first.keys, second.keys, first.delay = [], [], 1.0
        reading = asyncio.gather(*trajectories(client, 2 * GROUPS))
        while len(first.keys) < 8:
            await asyncio.sleep(0.01)
        await first.server.close()
        await reading
    assert set(first.keys) <= set(second.keys) and len(set(second.keys)) == GROUPS * CHUNKS
