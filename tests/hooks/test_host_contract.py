"""What slime and vime require of our hooks, restated without them; ``test_hosts`` runs their own code."""

import asyncio
import importlib
import inspect
from types import SimpleNamespace

import pytest

from mem_agent.custom_convert import custom_convert
from mem_agent.hooks.sample import Sample
from mem_agent.rollout import nonzero_std
from mem_agent.rollout_client import close_clients
from mem_agent.tests.helpers.fake_router import FakeRouter, running
from mem_agent.tests.helpers.tiny_tokenizer import encode

# --- how hooks are named and called -------------------------------------------------------------------------------

POSITIONAL = {
    "mem_agent.rollout.generate": ("args", "sample", "sampling_params"),
    "mem_agent.rollout.reward_func": ("args", "sample"),
    "mem_agent.custom_convert.custom_convert": ("args", "samples"),
    "mem_agent.rollout.nonzero_std": ("args", "samples"),
}
AWAITED = {"mem_agent.rollout.generate", "mem_agent.rollout.reward_func"}


def loaded(path):
    """Hosts split a hook's path at its last dot; a function must be an attribute of a plain module."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("path", POSITIONAL)
def test_hooks_take_what_hosts_pass(path):
    hook = loaded(path)
    assert tuple(inspect.signature(hook).parameters)[: len(POSITIONAL[path])] == POSITIONAL[path]
    assert inspect.iscoroutinefunction(hook) == (path in AWAITED)
    extra = list(inspect.signature(hook).parameters.values())[len(POSITIONAL[path]) :]
    assert all(p.default is not p.empty or p.kind is p.VAR_KEYWORD for p in extra)


def converted(samples, step, ranks, **args):
    given = {"mem_agent": {}, "data_parallel_size": ranks, "global_batch_size": step, "use_dynamic_batch_size": True}
    return custom_convert(SimpleNamespace(**given | args), samples)


# --- all hooks in the hosts' order --------------------------------------------------------------------------------


def test_a_group_with_an_abort_and_an_error_from_prompt_to_schedule(checkpoint):
    note, right, wrong = map(encode, ("m", "\\boxed{red}", "\\boxed{blue}"))
    turns = iter([note, note, right, note, "abort", note, 400, note, note, wrong])
    group = [
        Sample(prompt="who?", index=i, group_index=0, metadata={"context": "QWZJ" * 2, "ground_truth": ["red"]})
        for i in range(4)
    ]

    async def rollout(args):
        for sample in group:
            done = await loaded("mem_agent.rollout.generate")(args, sample, {"max_new_tokens": 9}, evaluation=False)
            assert done is sample
            if done.status is not Sample.Status.ABORTED and done.reward is None:
                done.reward = await loaded("mem_agent.rollout.reward_func")(args, done)
        await close_clients()

    async def main():
        async with running(FakeRouter(default=lambda body: next(turns))) as router:
            settings = {"MEM_CHUNK_TOKENS": 4, "MEM_MAX_MEMORY": 8, "MEM_MAX_FINAL": 16}
            await rollout(SimpleNamespace(hf_checkpoint=checkpoint, vllm_router_ip="127.0.0.1",
                                          vllm_router_port=router.port, mem_agent=settings))

    asyncio.run(main())
    assert [s.status.value for s in group] == ["completed", "aborted", "failed", "completed"]
    assert [s.reward for s in group] == [1.0, 0.0, 0.0, 0.0] and nonzero_std(SimpleNamespace(), group)
    data = converted(group, 4, 2)
    assert [data["rollout_ids"].count(i) for i in range(4)] == [3, 1, 1, 3]
    assert [data["rewards"][data["rollout_ids"].index(i)] for i in range(4)] == [0.5, 0.0, 0.0, -0.5]
