"""Deterministic batches, seeds and versions; what servers lose is sampled again; what runs beside the trainer ends."""

import asyncio
import gc
import json
import random
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest

from mem_agent import rollout_client
from mem_agent.config import Config, ConfigError
from mem_agent.data.training_file import TrainingRow
from mem_agent.hooks import rewards
from mem_agent.hooks.sample import AllFailed, Sample
from mem_agent.system.processes import FleetError
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside, vllm_answer
from mem_agent.training import rollouts
from mem_agent.training.rollouts import (
    Background,
    RolloutError,
    Rollouts,
    collect_batch,
    mask_stale,
    siblings,
    training_sampling,
)

ARGS = SimpleNamespace()


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
    assert [group[0].group_index for group in batch.groups] == [4, 6] and batch.next_group == 7
    assert len(batch.dropped) == 1 and len(batch.sampled) == 6
    assert set(started) == {4, 5, 6, 7} and cancelled == [7]


# --- samples ---------------------------------------------------------------------------------------------------------


POCKET = Path(__file__).parents[2] / "pocket"


def test_siblings_have_an_index_and_a_seed_of_their_own():
    groups = [siblings(TrainingRow("q", "a", {"context": "c"}), group, 4) for group in range(6)]
    samples = [sample for group in groups for sample in group]
    assert [sample.index for sample in samples] == list(range(24))
    assert {sample.group_index for sample in groups[5]} == {5} and samples[0].metadata is not samples[1].metadata
    sampling = [training_sampling(Config(seed=seed, temperature=0.7), sample) for seed in (1, 2) for sample in samples]
    assert len({one.pop("sampling_seed") for one in sampling}) == 48
    assert sampling[0] == {"temperature": 0.7, "top_p": 1.0, "top_k": -1}


def test_stale_and_mixed_trajectories_are_masked_and_counted():
    samples = [Sample(index=i, weight_versions=v) for i, v in enumerate([["4"], ["3"], ["3", "4"], []])]
    assert mask_stale(samples, "4") == 2
    assert [s.remove_sample for s in samples] == [False, True, True, False]
    with pytest.raises(RolloutError, match="stale"):
        mask_stale(samples[1:], "5")


# --- servers that fail inside a rollout ------------------------------------------------------------------------------


def pocket_config(folder, **settings):
    """Two documents, four trajectories each, of three chunks and the answer: 32 requests a rollout."""
    context = " ".join(f"The key of Anna is number {n}." for n in range(5))
    row = {"prompt": "Which key?", "metadata": {"ground_truth": ["3"], "context": context}}
    (folder / "train.jsonl").write_text(json.dumps(row) + "\n")
    defaults = {
        "hf_ckpt": str(POCKET / "start"), "mem_prompts": str(POCKET / "prompts.yaml"), "engine_max_len": 512,
        "train_data": str(folder / "train.jsonl"), "save_path": str(folder / "run"), "rollout_batch_size": 2,
        "n_samples_per_prompt": 4, "mem_chunk_tokens": 40, "mem_max_memory": 8, "mem_max_final": 12,
    }
    return Config(**(defaults | settings))


class FakeFleet:
    """A router alone. ``ensure_alive`` gives one of ``repairs`` after the other; until the last is given, requests
    that are ``spoilt`` (asked with their number) are answered with ``fault``."""

    def __init__(self, fault, spoilt, repairs=(0, 1)):
        self.router = FakeRouter(default=self.answer)
        self.fault, self.spoilt, self.repairs = fault, spoilt, list(repairs)
        self.calls, self.numbers = [], count()
        self.out_of_service = False

    @property
    def url(self):
        return f"http://127.0.0.1:{self.router.port}"

    def answer(self, body):
        if self.spoilt(next(self.numbers)) and self.repairs:
            return self.fault
        draw = random.Random(f"{body['token_ids']} {body['sampling_params']['seed']}")
        return vllm_answer([draw.randrange(20, 200) for _ in range(5)], version="0")

    async def ensure_alive(self, hung_after_s=0.0):
        self.calls.append("alive?")
        replaced = self.repairs.pop(0) if self.repairs else 0
        if isinstance(replaced, Exception):
            raise replaced
        return replaced

    async def start_over(self):
        self.calls.append("start over")
        self.out_of_service = False
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


EVERY, SOME = (lambda number: True), (lambda number: number == 11)


@pytest.mark.parametrize("fault,spoilt", [(503, EVERY), ("drop", SOME), ("hold", SOME), ("abort", EVERY)])
def test_a_rollout_that_lost_trajectories_to_a_replaced_server_is_sampled_again(fault, spoilt, tmp_path, monkeypatch):
    fleet = FakeFleet(fault, spoilt)
    if fault == "hold":  # good requests that end with it are sampled again as well
        monkeypatch.setattr(rollout_client, "TIMEOUT_S", 3.0)
    with rollouts_of(fleet, tmp_path, monkeypatch) as source:
        broken = source.rollout(0, 0)
        assert fleet.calls == ["alive?", "alive?", "start over"]
        assert broken.metrics["repeated"] == 1 and broken.metrics["failed"] == 0
        journalled = source.journal.read(0)
        assert journalled.train_data == broken.train_data
        source.journal.forget(1)
        unbroken = source.rollout(0, 0)
    assert len(set(map(tuple, unbroken.train_data["tokens"]))) > 8 and broken.train_data == unbroken.train_data
    passing = {"repeated": 0, "tokens_per_second": 0}
    assert broken.metrics | passing == unbroken.metrics | passing


@pytest.mark.parametrize("fault,kind", [(503, "server_error"), (400, "rejected")])
def test_losses_while_all_servers_are_well_stay_in_the_batch(fault, kind, tmp_path, monkeypatch):
    fleet = FakeFleet(fault, SOME, repairs=(0, 0))
    with rollouts_of(fleet, tmp_path, monkeypatch) as source:
        metrics = source.rollout(0, 0).metrics
    assert fleet.calls == ["alive?", "alive?"] and metrics["repeated"] == 0 and metrics[f"failed/{kind}"] > 0


@pytest.mark.parametrize("repairs,error", [((0, 0), AllFailed), ((0, FleetError("too many")), FleetError)])
def test_a_rollout_that_cannot_be_repeated_is_not_journalled(repairs, error, tmp_path, monkeypatch):
    with rollouts_of(FakeFleet(503, EVERY, repairs), tmp_path, monkeypatch) as source:
        with pytest.raises(error):
            source.rollout(0, 0)
        assert source.journal.read(0) is None


def test_metrics_are_those_of_the_kept_groups_and_one_says_what_all_earned(tmp_path, monkeypatch):
    """Two groups of reward 1 are kept, and two of 0 dropped."""
    monkeypatch.setattr(rollouts.hooks, "nonzero_std", lambda args, group: group[0].group_index > 1)

    async def reward(args, sample, **kwargs):
        return float(sample.group_index > 1)

    monkeypatch.setattr(rollouts.hooks, "reward_func", reward)
    fleet = FakeFleet(503, lambda number: False)
    with rollouts_of(fleet, tmp_path, monkeypatch, dynamic_filter="nonzero_std") as source:
        metrics = source.rollout(0, 0).metrics
    assert (metrics["reward"], metrics["sampled_reward"], metrics["dropped_groups"]) == (1.0, 0.5, 2)
    assert metrics["trajectories"] == 8 and metrics["mixed_groups"] == 0.0 and metrics["tokens_per_second"] > 0


def test_a_reward_whose_state_is_gone_ends_the_run_before_it_samples(tmp_path, monkeypatch):
    fleet = FakeFleet(503, lambda number: False)
    settings = {"mem_ir": "knn+", "mem_ir_args": "warmup=0 model=hashing"}
    with rollouts_of(fleet, tmp_path, monkeypatch, **settings) as source:
        source.rollout(0, 0)
        asked = len(fleet.router.requests)
        rewards.RUNS.clear()  # as in a fresh process
        with pytest.raises(ConfigError, match="before rollout 7 is not there"):
            source.rollout(7, 0)
    assert len(fleet.router.requests) == asked == 32


def test_what_still_ran_has_ended_when_the_loop_is_closed(capfd):
    background, ended = Background(), []

    async def work():
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(True)

    background.submit(work())
    background.run(asyncio.sleep(0))
    background.close()
    gc.collect()
    assert ended == [True] and capfd.readouterr().err == ""
