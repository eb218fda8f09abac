"""A real SGLang server on the CPU behind the real router: what the client and the hooks take for granted.

Runs where ``SGLANG_PYTHON`` names the Python of an environment as in requirements/sglang.txt.
"""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest

from mem_agent import rollout
from mem_agent.agents.records import Generation, StopReason
from mem_agent.hooks.sample import Record, Sample
from mem_agent.rehearsal.slime_shim import start_sglang
from mem_agent.rollout_client import Dialect, Endpoint, How, RouterClient, close_clients
from mem_agent.system.processes import wait_until_healthy
from mem_agent.system.server_url import free_ports
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.root.test_sglang_router import CONTEXT, answers, register, routing
from mem_agent.tests.serving.test_fleet_servers import greedy, log_prob_gap, plain_models, prompts

PYTHON = os.environ.get("SGLANG_PYTHON", "")


pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not PYTHON, reason="SGLANG_PYTHON names no Python with sglang"),
]

GREEDY = {"temperature": 0.0}
SAMPLED = {"temperature": 1.0}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[Path]:
    return [make_tiny_model(tmp_path_factory.mktemp("policy"), seed=seed) for seed in range(2)]


@pytest.fixture(scope="module")
def policies(folders):
    return plain_models(folders)


@pytest.fixture(scope="module")
def served(folders, tmp_path_factory):
    """The addresses of the router and of its only worker."""
    (port,) = free_ports(1)
    server = start_sglang(PYTHON, folders[0], port, CONTEXT, tmp_path_factory.mktemp("sglang"))
    worker = f"http://127.0.0.1:{port}"

    async def join(router: str) -> None:
        await wait_until_healthy(server, lambda: answers(f"{worker}/health"), 300.0)
        async with aiohttp.ClientSession(router) as session:
            await register(session, worker)

    try:
        with routing(tmp_path_factory.mktemp("router")) as router:
            asyncio.run(join(router))
            yield SimpleNamespace(router=router, worker=worker)
    finally:
        server.stop(20.0)


async def ask(served, prompt: list[int], budget: int = 24, **sampling) -> Generation:
    client = RouterClient(Endpoint(Dialect.SGLANG, served.router), 8)
    try:
        return await client.generate(prompt, budget, "group-0", How(sampling=sampling))
    finally:
        await client.close()


def sampled(served, prompt: list[int], budget: int = 24, **sampling) -> Generation:
    return asyncio.run(ask(served, prompt, budget, **sampling))


async def update(served, folder: Path, version: str, flush_cache: bool = True) -> None:
    await order(served, "/update_weights_from_disk", model_path=str(folder), weight_version=version,
                flush_cache=flush_cache)


async def order(served, path: str, **body) -> None:
    async with aiohttp.ClientSession(served.worker) as session:
        async with session.post(path, json=body) as reply:
            assert reply.status == 200, await reply.text()


@pytest.mark.parametrize("cut", [{}, {"temperature": 0.7}, {"top_p": 0.5}, {"top_k": 3}], ids=str)
def test_log_probs_are_those_after_the_temperature_and_before_top_p_and_top_k(served, policies, cut):
    for prompt in prompts():
        one = sampled(served, prompt, **SAMPLED | cut)
        assert log_prob_gap(policies[0], prompt, one.token_ids, one.log_probs, cut.get("temperature", 1.0)) < 1e-4


def test_a_reply_ends_with_the_stop_token_that_ended_it_or_with_its_budget(served, policies):
    prompt = prompts(3)[0]
    ids = greedy(policies[0], prompt, 4)
    one = sampled(served, prompt, **GREEDY, stop_token_ids=[ids[-1]])
    assert one.token_ids == ids[: ids.index(ids[-1]) + 1] and one.stop is StopReason.STOP
    one = sampled(served, prompt, 3, **GREEDY)
    assert one.token_ids == ids[:3] and one.stop is StopReason.LENGTH


def test_the_weight_version_and_the_weights_follow_an_update(served, folders, policies):
    prompt = prompts(7)[1]

    async def main():
        before = await ask(served, prompt, **GREEDY)
        try:
            await update(served, folders[1], "7")
            after = await ask(served, prompt, **GREEDY)
            long = asyncio.create_task(ask(served, prompt, 400, **SAMPLED))
            while await in_flight(served) == 0:
                await asyncio.sleep(0.01)
            await order(served, "/pause_generation", mode="retract")
            await update(served, folders[1], "8", flush_cache=False)
            await order(served, "/continue_generation")
            return before, after, await long
        finally:
            await update(served, folders[0], "default")

    before, after, spanning = asyncio.run(main())
    assert before.token_ids == greedy(policies[0], prompt, 24) and before.weight_version == "default"
    assert after.token_ids == greedy(policies[1], prompt, 24) != before.token_ids and after.weight_version == "7"
    assert spanning.weight_version == "7+8"


async def in_flight(served) -> int:
    async with aiohttp.ClientSession(served.worker) as session:
        async with session.get("/v1/loads?include=core") as reply:
            return sum(load["num_running_reqs"] for load in (await reply.json())["loads"])


def test_trajectories_are_sampled_as_the_policy_would_and_end_with_an_abort_order(served, folders, policies):
    host, _, port = served.router.removeprefix("http://").partition(":")

    def reading(index: int, budget: int) -> asyncio.Future[Sample]:
        settings = {"MEM_CHUNK_TOKENS": 300, "MEM_MAX_MEMORY": budget, "MEM_MAX_FINAL": budget}
        args = SimpleNamespace(hf_checkpoint=str(folders[0]), sglang_router_ip=host, sglang_router_port=int(port),
                               sglang_context_length=CONTEXT, mem_agent=settings)
        text = "Anna met Berta in Paris on Monday and told her the secret number of the blue house. " * 20
        one = Sample(prompt="What is the secret number?", index=index, group_index=9, metadata={"context": text})
        return asyncio.ensure_future(rollout.generate(args, one, SAMPLED))

    async def main():
        try:
            done = [await reading(0, 24), *await asyncio.gather(reading(1, 24), reading(2, 24))]
            long = reading(3, 900)
            while await in_flight(served) == 0:
                await asyncio.sleep(0.01)
            await order(served, "/abort_request", abort_all=True)
            return done, await long, await in_flight(served)
        finally:
            await close_clients()

    done, aborted, left = asyncio.run(main())
    for sample in done:
        turns = Record.of(sample).turns
        assert [t.kind for t in turns] == ["memory"] * (len(turns) - 1) + ["final"] and len(turns) > 2
        assert sample.weight_versions == ["default"]
        for turn in turns:
            assert log_prob_gap(policies[0], turn.prompt_ids, turn.response_ids, turn.log_probs) < 1e-4
    # Instructions, question and first section are the same; the cached token count leaves only what follows them.
    assert all(Record.of(sample).turns[0].cached_tokens > 300 for sample in done[1:])
    assert aborted.status is Sample.Status.ABORTED and left == 0
