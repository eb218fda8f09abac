"""Deterministic batches, seeds and versions; what servers lose is sampled again; what runs beside the trainer ends."""

import asyncio
import json
import random
from contextlib import contextmanager, nullcontext
from pathlib import Path

import aiohttp
import pytest

from mem_agent import rollout_client
from mem_agent.config import Config
from mem_agent.hooks.sample import AllFailed, Sample
from mem_agent.system.processes import FleetError
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside, vllm_answer
from mem_agent.training import rollouts
from mem_agent.training.rollouts import Rollouts, collect_batch

# --- a batch ---------------------------------------------------------------------------------------------------------


def test_a_batch_is_in_data_order_and_what_it_does_not_need_is_cancelled():
    """The example of the module; the first group is the slowest."""
    started, cancelled = [], []

    async def run_group(number):
        started.append(number)
        try:
            await asyncio.sleep({4: 0.05, 5: 0.0, 6: 0.1}.get(number, 600))
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return [Sample(group_index=number, index=number * 2 + i) for i in range(2)]

    batch = asyncio.run(collect_batch(run_group, lambda group: group[0].group_index != 5, 4, 2, 3))
    assert [sample.index for sample in batch.samples] == [8, 9, 12, 13] and batch.next_group == 7
    assert [sample.group_index for sample in batch.dropped] == [5, 5]
    assert set(started) == {4, 5, 6, 7} and cancelled == [7]


POCKET = Path(__file__).parents[2] / "pocket"


# --- servers that fail inside a rollout ------------------------------------------------------------------------------


def pocket_config(folder, **settings):
    """Two documents, four trajectories each, of three chunks and the answer: 32 requests a rollout."""
    context = " ".join(f"The key of Anna is number {n}." for n in range(5))
    row = {"prompt": "Which key?", "metadata": {"ground_truth": ["3"], "context": context}}
    (folder / "train.jsonl").write_text(json.dumps(row) + "\n")
    return Config(**settings, **{
        "hf_ckpt": str(POCKET / "start"), "mem_prompts": str(POCKET / "start" / "mem_agent_prompts.yaml"),
        "engine_max_len": 512,
        "train_data": str(folder / "train.jsonl"), "save_path": str(folder / "run"), "rollout_batch_size": 2,
        "n_samples_per_prompt": 4, "mem_chunk_tokens": 40, "mem_max_memory": 8, "mem_max_final": 12,
    })


class FakeFleet:
    """A router alone. ``ensure_alive`` gives one of ``repairs`` after the other; until the last is given, requests
    that are ``spoilt`` (asked with their number) are answered with ``fault``."""

    def __init__(self, fault=503, spoilt=lambda number: False, repairs=(0, 1)):
        self.router = FakeRouter(default=self.answer)
        self.fault, self.spoilt, self.repairs = fault, spoilt, list(repairs)
        self.calls, self.answers, self.restarts, self.out_of_service = [], 0, 0, False

    @property
    def url(self):
        return self.router.url

    def answer(self, body):
        self.answers += 1
        if self.repairs and self.spoilt(self.answers):
            return self.fault
        draw = random.Random(f"{body['token_ids']} {body['sampling_params']['seed']}")
        return vllm_answer([draw.randrange(20, 200) for _ in range(5)], version="0")

    async def ensure_alive(self, hung_after_s=0.0):
        self.calls.append("alive?")
        replaced = self.repairs.pop(0) if self.repairs else 0
        if isinstance(replaced, Exception):
            raise replaced
        self.restarts += replaced
        return replaced

    async def start_over(self):
        self.calls.append("start over")
        async with aiohttp.ClientSession() as session:
            await session.post(f"{self.url}/abort_request")

    async def start(self):
        pass

    stop = start


@contextmanager
def rollouts_of(fleet, folder, monkeypatch, **settings):
    monkeypatch.setattr(rollouts, "Fleet", lambda *args, **kwargs: fleet)
    with running_beside(fleet.router):
        source = Rollouts(pocket_config(folder, **settings))
        try:
            yield source
        finally:
            source.close()


EVERY, SOME = (lambda number: True), (lambda number: number == 12)


@pytest.mark.parametrize("fault,spoilt", [("drop", SOME), ("hold", SOME), ("abort", EVERY)])
def test_a_rollout_that_lost_trajectories_to_a_replaced_server_is_sampled_again(fault, spoilt, tmp_path, monkeypatch):
    fleet = FakeFleet(fault, spoilt)
    if fault == "hold":  # good requests that end with it are sampled again as well
        monkeypatch.setattr(rollout_client, "TIMEOUT_S", 3.0)
    with rollouts_of(fleet, tmp_path, monkeypatch) as source:
        broken = source.rollout(0, 0)
        assert fleet.calls == ["alive?", "alive?", "start over"]
        assert broken.metrics["repeated"] == 1 and broken.metrics["failed"] == 0 and source.journal.read(0) == broken
        source.journal.forget(1)
        unbroken = source.rollout(0, 0)
    assert len(set(map(tuple, unbroken.train_data["tokens"]))) > 8 and broken.train_data == unbroken.train_data
    passing = {"repeated": 0, "tokens_per_second": 0}
    assert broken.metrics | passing == unbroken.metrics | passing


@pytest.mark.parametrize("spoilt,repairs,error", [
    (SOME, (0, 0), None), (EVERY, (0, 0), AllFailed), (EVERY, (0, FleetError("too many")), FleetError)])
def test_losses_while_all_servers_are_well_stay_in_the_batch(spoilt, repairs, error, tmp_path, monkeypatch):
    """One that cannot be repeated is not journalled."""
    with rollouts_of(FakeFleet(503, spoilt, repairs), tmp_path, monkeypatch) as source:
        with pytest.raises(error) if error else nullcontext():
            metrics = source.rollout(0, 0).metrics
            assert metrics["repeated"] == 0 and metrics["failed/server_error"] > 0
        assert (source.journal.read(0) is None) == bool(error)


def test_metrics_are_those_of_the_kept_groups_and_one_says_what_all_earned(tmp_path, monkeypatch):
    """Two groups of reward 1 are kept, and two of 0 dropped."""

    async def reward(args, sample, **kwargs):
        return float(sample.group_index > 1)

    monkeypatch.setattr(rollouts.hooks, "nonzero_std", lambda args, group: group[0].group_index > 1)
    monkeypatch.setattr(rollouts.hooks, "reward_func", reward)
    with rollouts_of(FakeFleet(), tmp_path, monkeypatch, dynamic_filter="nonzero_std") as source:
        metrics = source.rollout(0, 0).metrics
    assert (metrics["reward"], metrics["sampled_reward"], metrics["dropped_groups"]) == (1.0, 0.5, 2)
    assert metrics["trajectories"] == 8 and metrics["mixed_groups"] == 0.0 and metrics["tokens_per_second"] > 0
