"""What slime and vime require of our hooks, restated without them: how hooks are called, and what the schedule takes.

``schedule`` is written from the hosts' rules, not from their code; ``test_hosts`` runs their code where it is at hand.
Calls with an attribute-less ``args`` are in ``test_custom_convert`` and ``test_rollout``, the log hooks' in
``test_rollout_log``.
"""

import asyncio
import importlib
import inspect
import random
from types import SimpleNamespace

import pytest

from mem_agent.custom_convert import custom_convert
from mem_agent.hooks.sample import Sample
from mem_agent.rollout import nonzero_std
from mem_agent.rollout_client import close_clients
from mem_agent.tests.helpers import samples
from mem_agent.tests.helpers.fake_router import FakeRouter, running
from mem_agent.tests.helpers.samples import turn
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


# --- the data-parallel schedule -----------------------------------------------------------------------------------


def schedule(data, step, ranks, cap, *, cp=1, group=1):
    """Micro-batches of every rank, step by step: ``[step][rank][batch] = row numbers``.

    Steps take ``step`` trajectories each, by first row. Rows go into the first bin with room, or into a new one; then
    the fullest bin of several rows is halved until ranks x group divides the number of bins.
    """
    lengths = [len(tokens) for tokens in data["tokens"]]
    order = list(dict.fromkeys(data["rollout_ids"]))
    assert len(order) >= step, "fewer trajectories than a step takes"
    steps = []
    for first in range(0, len(order) - step + 1, step):
        chosen = set(order[first : first + step])
        bins = []
        for row, trajectory in enumerate(data["rollout_ids"]):
            if trajectory in chosen:
                room = [b for b in bins if sum(lengths[i] for i in b) + lengths[row] <= cap * cp]
                if not room:
                    room = [[]]
                    bins += room
                room[0].append(row)
        while len(bins) % (ranks * group):
            several = [b for b in bins if len(b) > 1]
            assert several, f"{len(bins)} bins of one row each cannot be spread over {ranks} ranks x {group}"
            fullest = max(several, key=lambda b: sum(lengths[i] for i in b))
            bins += [fullest[: len(fullest) // 2], fullest[len(fullest) // 2 :]]
            bins.remove(fullest)
        steps.append([bins[rank::ranks] for rank in range(ranks)])
    return steps


def trajectory(index, group, reward, turns, status="completed", **fields):
    """``turns`` are pairs of prompt and reply lengths."""
    records = [turn(reply, prompt=prompt) for prompt, reply in turns]
    return samples.trajectory(records, status, index=index, group_index=group, reward=reward, **fields)


def converted(samples, step, ranks, **args):
    given = {"mem_agent": {}, "data_parallel_size": ranks, "global_batch_size": step, "use_dynamic_batch_size": True}
    return custom_convert(SimpleNamespace(**given | args), samples)


def check(samples, data, steps):
    """Every row is scheduled once, every trajectory is there, and each usable one weighs 1."""
    scheduled = [row for step in steps for rank in step for batch in rank for row in batch]
    assert sorted(scheduled) == list(range(len(data["tokens"])))
    assert all(len({len(rank) for rank in step}) == 1 for step in steps)
    weights = dict.fromkeys((s.index for s in samples), 0.0)
    for row in scheduled:
        weights[data["rollout_ids"][row]] += sum(data["loss_masks"][row]) / max(data["rollout_mask_sums"][row], 1)
    usable = {s.index: float(s.status.value in ("completed", "truncated") and not s.remove_sample) for s in samples}
    assert weights == pytest.approx(usable)


MIXED = [
    trajectory(0, 0, 1.0, [(20, 5)]), trajectory(1, 0, 0.0, [(20, 5)] * 12),
    trajectory(2, 0, 0.0, [(20, 5)] * 3, "failed"), trajectory(3, 0, 0.0, [(20, 5)] * 4, "aborted"),
    trajectory(4, 1, 1.0, [(20, 5)] * 5), trajectory(5, 2, 1.0, [(20, 5)] * 2, "truncated"),
    trajectory(6, 2, 1.0, [(20, 5)] * 7, remove_sample=True), trajectory(7, 3, 0.0, [], "failed"),
]


@pytest.mark.parametrize("seed", range(10))
def test_random_batches_are_schedulable(seed):
    rng = random.Random(seed)
    step, ranks = rng.choice([1, 2, 4, 8]), rng.choice([1, 2, 3, 4, 8])
    samples = [
        trajectory(i, i // 4, rng.choice([0.0, 0.5, 1.0]),
                   [(rng.randint(1, 90), rng.randint(1, 20)) for _ in range(rng.randint(1, 12))],
                   rng.choice(["completed", "completed", "truncated", "failed", "aborted"]))
        for i in range(step * rng.randint(1, 4))
    ]
    samples[-1] = trajectory(len(samples) - 1, 0, 1.0, [(9, 9)])  # of none but failed ones nothing is converted
    data = converted(samples, step, ranks)
    check(samples, data, schedule(data, step, ranks, cap=rng.choice([32, 64, 256]), cp=rng.choice([1, 2])))


# --- rows ---------------------------------------------------------------------------------------------------------


def test_columns_are_what_hosts_turn_into_tensors():
    """A prompt token before every response, whole numbers where hosts want them, floats elsewhere, no None."""
    data = converted(MIXED, 8, 3)
    for tokens, length, mask, log_probs in zip(
        data["tokens"], data["response_lengths"], data["loss_masks"], data["rollout_log_probs"], strict=True
    ):
        assert 0 < length < len(tokens) and len(mask) == len(log_probs) == length
        assert {type(value) for value in [*tokens, *mask, length]} == {int} and {*mask} <= {0, 1}
        assert {type(value) for value in log_probs} == {float}
    assert {type(value) for value in data["rewards"]} == {float}
    for name in ("truncated", "rollout_mask_sums", "rollout_ids", "sample_indices", "raw_reward"):
        assert {type(value) for value in data[name]} <= {int, float}, name


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
    check(group, data, schedule(data, 4, 2, cap=40))
