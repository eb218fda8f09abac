"""A real vLLM server behind the real router: log-probs, weight sync, replacement, and a launcher that is killed."""

import asyncio
import re
from pathlib import Path

import aiohttp
import psutil
import pytest
import pytest_asyncio
import torch
from safetensors.torch import load_file

from mem_agent.config import Config
from mem_agent.rollout_client import GENERATE, parse_vllm
from mem_agent.serving.control import ControlError
from mem_agent.serving.fleet import Fleet
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.trainer_steps import listening
from mem_agent.tests.system.test_processes import group_members

pytestmark = [pytest.mark.servers, pytest.mark.asyncio(loop_scope="module")]

# Longer than one and than many cache blocks, so that a stale prefix cache would show.
PROMPT_LENGTHS = (5, 150, 400)
SETTINGS = {
    "mem_chunk_tokens": 256, "mem_max_memory": 128, "mem_max_question": 64, "engine_max_len": 1024,
    "engine_args": "--max-num-seqs 16 --kv-cache-memory-bytes 67108864",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[Path]:
    """Three policies of one shape: the starting weights and two later ones. Tied, the harder case of a reload."""
    return [make_tiny_model(tmp_path_factory.mktemp("policy"), seed=seed, tied=True) for seed in range(3)]


def plain_models(folders: list[Path]) -> list:
    from transformers import AutoModelForCausalLM  # takes seconds

    return [AutoModelForCausalLM.from_pretrained(f, dtype=torch.float32).eval() for f in folders]


@pytest.fixture(scope="module")
def policies(folders):
    return plain_models(folders)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(folders, tmp_path_factory):
    async with Fleet(Config(**SETTINGS), folders[0], run_folder=tmp_path_factory.mktemp("run")) as fleet:
        yield fleet


async def generate(fleet: Fleet, prompt: list[int], tokens: int = 24, salt: str = "", **sampling) -> dict:
    """The choice, and how many prompt tokens were ``cached``; ``salt``: a group's in a fully asynchronous run."""
    params = {"max_tokens": tokens, "logprobs": 0, "ignore_eos": True, **sampling}
    body = {"token_ids": prompt, "sampling_params": params} | ({"cache_salt": salt} if salt else {})
    async with aiohttp.ClientSession() as session, session.post(fleet.url + GENERATE, json=body) as reply:
        assert reply.status == 200, await reply.text()
        answer = await reply.json()
    return answer["choices"][0] | {"cached": parse_vllm(answer).cached_tokens}


async def long_request(fleet: Fleet) -> asyncio.Task[dict]:
    """One that the engine is at work on, for as long as the model's length lets it."""
    task = asyncio.create_task(generate(fleet, [5, 6, 7], tokens=1000))
    running = re.compile(r"^vllm:num_requests_running\{.*\} [1-9]", re.MULTILINE)
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{fleet.engines[0].client.url}/metrics") as reply:
                if running.search(await reply.text()):
                    return task
            assert not task.done(), "it was over before the engine said that it runs"


def prompts(seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 512, (n,), generator=generator).tolist() for n in PROMPT_LENGTHS]


@torch.no_grad()
def greedy(policy, prompt: list[int], tokens: int = 24) -> list[int]:
    ids = list(prompt)
    for _ in range(tokens):
        ids.append(int(policy(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt):]


def versions(choice: dict) -> set[str]:
    return {span["version"] for span in choice["weight_versions"]}


@torch.no_grad()
def log_prob_gap(policy, prompt: list[int], ids: list[int], log_probs: list[float], temperature: float = 1.0) -> float:
    """Largest difference between an engine's log-probs and the policy's own."""
    logits = policy(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1:-1]
    expected = (logits / temperature).log_softmax(-1).gather(-1, torch.tensor(ids)[:, None])[:, 0]
    return float((torch.tensor(log_probs) - expected).abs().max())


def gap(policy, prompt: list[int], choice: dict, temperature: float = 1.0) -> float:
    ids, content = choice["token_ids"], choice["logprobs"]["content"]
    assert [c["token_id"] for c in content] == ids
    return log_prob_gap(policy, prompt, ids, [c["logprob"] for c in content], temperature)


async def test_log_probs_are_those_of_the_sampled_distribution(running, policies):
    for seed, prompt in enumerate(prompts()):
        for temperature in (1.0, 0.7):
            choice = await generate(running, prompt, temperature=temperature, seed=seed)
            assert versions(choice) == {"0"}
            assert gap(policies[0], prompt, choice, temperature) < 1e-4


async def test_sync_gives_the_new_policy_for_old_and_cached_prompts(running, folders, policies):
    for prompt in prompts():
        before = await generate(running, prompt, temperature=0.0)
        assert before["token_ids"] == greedy(policies[0], prompt)
    await running.sync_weights(load_file(folders[1] / "model.safetensors"), "1")
    for prompt in prompts():
        after = await generate(running, prompt, temperature=0.0)
        assert after["token_ids"] == greedy(policies[1], prompt) != greedy(policies[0], prompt)
        assert versions(after) == {"1"} and gap(policies[1], prompt, after) < 1e-4


async def test_a_request_in_flight_is_aborted_by_a_sync_and_keeps_its_version(running, folders):
    long = await long_request(running)
    await running.sync_weights(load_file(folders[2] / "model.safetensors"), "2")
    choice = await long
    assert choice["finish_reason"] == "abort" and versions(choice) == {"1"}
    assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) < 1000


async def test_a_later_group_meets_no_block_of_old_weights_after_a_reset_that_was_refused(running, folders, policies):
    prompt = prompts()[-1]
    _, sibling = [await generate(running, prompt, 8, "group-1", temperature=0.0) for _ in range(2)]
    assert sibling["cached"] > 300
    engine = running.engines[0].client
    waiting = await long_request(running)
    await engine.call("POST", "/pause?mode=keep&clear_cache=false")
    with pytest.raises(ControlError, match="/reset_prefix_cache was refused"):
        await engine.reset_prefix_cache()
    await engine.reload_weights(folders[0])
    await engine.call("POST", "/resume")
    stale = await generate(running, prompt, 8, "group-1", temperature=0.0)
    assert stale["cached"] > 300 and gap(policies[0], prompt, stale) > 1e-3
    fresh = await generate(running, prompt, 8, "group-2", temperature=0.0)
    assert fresh["cached"] == 0 and gap(policies[0], prompt, fresh) < 1e-4
    await waiting
    await engine.load(folders[2], "2")


async def test_servers_listen_on_loopback(running):
    members = [psutil.Process(pid) for process in running._processes for pid in group_members(process.pid)]
    assert set().union(*map(listening, members)) <= {"127.0.0.1", "::1"}
