"""Deterministic batches, seeds and versions; what servers lose is sampled again; what runs beside the trainer ends."""

import asyncio
import gc
import json
import random
import threading
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest

from mem_agent import rollout_client
from mem_agent.config import Config, ConfigError
from mem_agent.data.training_file import TrainingRow
from mem_agent.hooks import rewards
from mem_agent.hooks.host import HostArgs, embedded_args
from mem_agent.hooks.sample import AllFailed, Sample
from mem_agent.rollout import nonzero_std
from mem_agent.rollout_client import Dialect, Endpoint
from mem_agent.system.processes import FleetError
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside, vllm_answer
from mem_agent.tests.helpers.patience import HANGS_AFTER_S
from mem_agent.tests.helpers.samples import trajectory, turn
from mem_agent.training import rollouts
from mem_agent.training.rollouts import (
    Background,
    Batch,
    RolloutError,
    Rollouts,
    collect_batch,
    mask_stale,
    run_sample,
    siblings,
    training_sampling,
)

ARGS = SimpleNamespace()


# --- a batch ---------------------------------------------------------------------------------------------------------


def collect(run=None, keep=lambda group: True, batch=2, in_flight=2, first=0):
    """``run(number)`` is awaited within group ``number``."""

    async def run_group(number):
        if run is not None:
            await run(number)
        return [Sample(group_index=number, index=number * 2 + i, reward=i) for i in range(2)]

    async def main():
        return await collect_batch(run_group, keep, first, batch, in_flight)

    return asyncio.run(main())


def numbers(batch):
    return [group[0].group_index for group in batch.groups]


def test_the_batch_is_in_data_order_even_when_later_groups_are_faster():
    async def slow_first(number):
        await asyncio.sleep(0.05 if number == 0 else 0.0)

    batch = collect(slow_first, in_flight=4)
    assert numbers(batch) == [0, 1] and batch.next_group == 2


def test_worked_example_of_the_docstring():
    started, cancelled = [], []

    async def run(number):
        started.append(number)
        try:
            await asyncio.sleep(0.01 * number**2)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    batch = collect(run, keep=lambda group: group[0].group_index != 5, in_flight=3, first=4)
    assert numbers(batch) == [4, 6] and len(batch.dropped) == 1 and len(batch.sampled) == 6 and batch.next_group == 7
    assert set(started) == {4, 5, 6, 7} and set(cancelled) == {7}


def test_a_group_that_raises_cancels_the_rest():
    cancelled = []

    async def run(number):
        if number == 0:
            raise ValueError("bug")
        try:
            await asyncio.sleep(HANGS_AFTER_S)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    with pytest.raises(ValueError, match="bug"):
        collect(run)
    assert cancelled == [1]


@pytest.mark.parametrize(("given", "status", "expected"), [
    (0.5, "completed", 0.5), (None, "completed", 0.25), (None, "aborted", None),
])
def test_the_reward_hook_fills_only_missing_rewards(monkeypatch, given, status, expected):
    async def generate(args, sample, sampling):
        sample.reward, sample.status = given, Sample.Status(status)
        return sample

    async def reward(args, sample):
        return 0.25

    monkeypatch.setattr(rollouts.hooks, "generate", generate)
    monkeypatch.setattr(rollouts.hooks, "reward_func", reward)
    assert asyncio.run(run_sample(ARGS, Sample(), {})).reward == expected


def test_filter_counts_a_fanned_out_trajectory_once():
    def sample(reward, status="completed"):
        return Sample(reward=reward, status=Sample.Status(status))

    assert not nonzero_std(ARGS, [[sample(1.0), sample(1.0)], [sample(1.0)]])
    assert nonzero_std(ARGS, [[sample(1.0), sample(1.0)], sample(0.0)])
    assert not nonzero_std(ARGS, [sample(1.0), sample(0.0, "failed"), sample(0.0, "aborted")])
    earned = [sample(1.0), sample(1.0)]
    for one, gains in zip(earned, ([1.0, 0.0], [0.0, 0.0]), strict=True):
        turns = [turn(state_rewards={"format": 1.0, "gain": gain}) for gain in gains]
        one.train_metadata = trajectory(turns).train_metadata
    for alpha, kept in ((0.8, True), (1.0, False)):
        settings = {"AGENT": "rememr1", "AGENT_ARGS": f"alpha={alpha}"}
        assert nonzero_std(SimpleNamespace(mem_agent=settings), earned) is kept
    assert nonzero_std(SimpleNamespace(reward_key="s"), [sample({"s": 1.0}), sample({"s": 0.0})])


LOST = [
    ("failed", "connection", True), ("failed", "timeout", True), ("failed", "server_error", True),
    ("failed", "bad_response", True), ("aborted", None, True),
    ("failed", "rejected", False), ("failed", "long_prompt", False), ("failed", "internal", False),
    ("completed", None, False), ("truncated", None, False),
]


@pytest.mark.parametrize("status,failure,lost", LOST)
def test_what_servers_may_have_lost_is_seen_in_kept_and_dropped_groups(status, failure, lost):
    fine = Sample(status=Sample.Status.COMPLETED)  # of another generate hook: it describes nothing
    other = trajectory(status=status, failure=failure)
    assert Batch([[fine, other]], 1, []).lost is lost
    assert Batch([[fine]], 2, [[fine, other]]).lost is lost


# --- samples ---------------------------------------------------------------------------------------------------------


def test_siblings_share_group_and_have_their_own_index():
    groups = [siblings(TrainingRow("q", "a", {"context": "c"}), group, 4) for group in range(6)]
    assert [sample.index for group in groups for sample in group] == list(range(24))
    assert {sample.group_index for sample in groups[5]} == {5}
    assert {(sample.prompt, sample.label) for sample in groups[0]} == {("q", "a")}


def test_siblings_share_no_metadata():
    one, two = siblings(TrainingRow("q", "a", {"context": "c"}), 0, 2)
    one.metadata["x"] = 1
    assert two.metadata == {"context": "c"}


POCKET = Path(__file__).parents[2] / "pocket"


def test_seeds_differ_by_trajectory_and_run_and_repeat():
    seeds = [training_sampling(Config(seed=s), Sample(index=i))["sampling_seed"] for s in (1, 2) for i in range(50)]
    assert len(set(seeds)) == 100 and all(0 <= seed < 2**31 for seed in seeds)
    assert training_sampling(Config(seed=1), Sample(index=7))["sampling_seed"] == seeds[7]


def test_rollouts_sample_the_policy_itself():
    assert training_sampling(Config(temperature=0.7), Sample(index=0)) | {"sampling_seed": 0} == {
        "temperature": 0.7, "top_p": 1.0, "top_k": -1, "sampling_seed": 0,
    }


def test_stale_and_mixed_trajectories_are_masked_and_counted():
    samples = [Sample(index=i, weight_versions=v) for i, v in enumerate([["4"], ["3"], ["3", "4"], []])]
    assert mask_stale(samples, "4") == 2
    assert [s.remove_sample for s in samples] == [False, True, True, False]


def test_engines_that_are_all_stale_end_the_run():
    with pytest.raises(RolloutError, match="the engines are stale"):
        mask_stale([Sample(index=0, weight_versions=["default"]), Sample(index=1)], "1")


def test_hooks_see_the_names_that_other_hosts_use():
    config = Config(engine_max_len=77)
    endpoint = Endpoint(Dialect.VLLM, "http://127.0.0.1:9", 77)
    host = HostArgs.of(embedded_args(config, endpoint))
    assert host.router is endpoint and host.config is config and host.step_trajectories == 64


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
REPAIRED = ["alive?", "alive?", "start over"]


@pytest.mark.parametrize("spoilt", [EVERY, SOME], ids=["every", "some"])
@pytest.mark.parametrize("fault", [503, "drop", "hold", "abort", "garbage"])
def test_a_rollout_that_lost_trajectories_to_a_replaced_server_is_sampled_again(fault, spoilt, tmp_path, monkeypatch):
    fleet = FakeFleet(fault, spoilt)
    if fault == "hold":  # good requests that end with it are sampled again as well
        monkeypatch.setattr(rollout_client, "TIMEOUT_S", 5.0)
    with rollouts_of(fleet, tmp_path, monkeypatch) as source:
        broken = source.rollout(0, 0)
        assert fleet.calls == REPAIRED and broken.metrics["repeated"] == 1 and broken.metrics["failed"] == 0
        assert source.journal.read(0) == broken
        source.journal.forget(0)
        asked = [Path(source.config.save_path) / "eval" / f"during-iter_000000{number}" for number in (0, 1)]
        for folder in asked:
            folder.mkdir(parents=True)
        unbroken = source.rollout(0, 0)
        assert not any(folder.exists() for folder in asked)  # answers of other weights
    assert unbroken.metrics["repeated"] == 0 and len(set(map(tuple, unbroken.train_data["tokens"]))) > 8
    assert replace(broken, metrics=broken.metrics | {"repeated": 0}) == unbroken


def test_losses_while_all_servers_are_well_stay_in_the_batch(tmp_path, monkeypatch):
    fleet = FakeFleet(503, SOME, repairs=(0, 0))
    with rollouts_of(fleet, tmp_path, monkeypatch) as source:
        metrics = source.rollout(0, 0).metrics
    assert fleet.calls == ["alive?", "alive?"] and metrics["repeated"] == 0 and metrics["failed/server_error"] > 0


def test_failures_of_the_request_itself_ask_nothing_of_the_servers(tmp_path, monkeypatch):
    fleet = FakeFleet(400, SOME)
    with rollouts_of(fleet, tmp_path, monkeypatch) as source:
        metrics = source.rollout(0, 0).metrics
    assert fleet.calls == ["alive?"] and metrics["repeated"] == 0 and metrics["failed/rejected"] > 0


@pytest.mark.parametrize("repairs,error", [
    ((0, 0), (AllFailed, "all 8 trajectories of a rollout failed; the first: .* HTTP 503")),
    ((0, FleetError("3 servers were replaced")), (FleetError, "3 servers were replaced")),
])
def test_a_rollout_that_cannot_be_repeated_is_not_journalled(repairs, error, tmp_path, monkeypatch):
    with rollouts_of(FakeFleet(503, EVERY, repairs), tmp_path, monkeypatch) as source:
        with pytest.raises(error[0], match=error[1]):
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
    assert metrics["trajectories"] == 8 and metrics["mixed_groups"] == 0.0 and source.speed["tokens_per_second"] > 0


STATEFUL = """
from mem_agent.rewards.reward import Reward

class Own(Reward):
    def batch_parts(self, batch): return [{}] * len(batch)
    def save(self, folder): pass
    def load(self, folder): pass
"""


def test_a_reward_whose_state_is_gone_ends_the_run_before_anything_is_sampled(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(STATEFUL)
    fleet = FakeFleet(503, lambda number: False)
    with rollouts_of(fleet, tmp_path, monkeypatch, reward=f"{tmp_path}/own.py:Own") as source:
        with pytest.raises(ConfigError, match="before rollout 3 is not there"):
            source.rollout(3, 0)
        assert fleet.router.requests == []
        assert source.rollout(0, 0).metrics["failed"] == 0


KNN = {"mem_ir": "knn+", "mem_ir_args": "warmup=0 model=hashing"}


def test_an_intrinsic_reward_is_scored_off_the_event_loop_and_goes_on_in_another_process(tmp_path, monkeypatch):
    threads, score = [], rewards.apply
    monkeypatch.setattr(rollouts, "mask_stale", lambda samples, version: 0)  # the fake's weights are always 0

    def apply(host, samples, number):
        if number is not None:  # else it is the converter, who finds all done
            threads.append(threading.current_thread().name)
        score(host, samples, number)

    given = {}
    for name, killed in (("unbroken", ()), ("killed", (1, 2))):
        (tmp_path / name).mkdir()
        with rollouts_of(FakeFleet(503, lambda number: False), tmp_path / name, monkeypatch, **KNN) as source:
            monkeypatch.setattr(rollouts.rewards, "apply", apply)
            given[name] = []
            for number in range(3):
                if number in killed:
                    rewards.RUNS.clear()  # as in a fresh process
                given[name].append(source.rollout(number, 2 * number))
            monkeypatch.setattr(rollouts.rewards, "apply", score)
    assert [one.train_data for one in given["unbroken"]] == [one.train_data for one in given["killed"]]
    metrics = given["killed"][-1].metrics
    assert metrics["intrinsic/failure_questions"] == 1 and metrics["intrinsic/failure_vectors"] == 24
    assert metrics["reward/intrinsic_explore"] > 0
    assert len(threads) == 6 and "rollouts" not in threads


def test_a_torn_record_whose_state_is_gone_sets_a_run_with_a_state_back_to_one_that_is_there(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(rollouts, "mask_stale", lambda samples, version: 0)  # the fake's weights are always 0
    with rollouts_of(FakeFleet(503, lambda number: False), tmp_path, monkeypatch, **KNN) as source:
        given = [source.rollout(number, 2 * number) for number in range(4)]
    assert not (tmp_path / "run" / "reward_state" / "0000001").exists()  # two are kept, and those of checkpoints
    (tmp_path / "run" / "rollouts" / "rollout_0000002.json").write_text("{")
    rewards.RUNS.clear()  # as in a fresh process
    with rollouts_of(FakeFleet(503, lambda number: False), tmp_path, monkeypatch, **KNN) as source:
        source.begin(0)
        again = [source.rollout(number, 2 * number) for number in range(4)]
        assert len(source.fleet.router.requests) == 4 * 32
    assert [one.train_data for one in again] == [one.train_data for one in given]
    assert "state before rollout 3 is not there: those from 1 on are sampled again" in caplog.text


# --- beside the trainer ----------------------------------------------------------------------------------------------


def test_what_was_cancelled_has_ended_when_the_loop_is_closed(capfd):
    background, ended = Background(), []

    async def slow_to_end():
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0.2)
            ended.append(True)

    async def several():
        await asyncio.gather(*(slow_to_end() for _ in range(3)))

    future = background.submit(several())
    background.run(asyncio.sleep(0))
    future.cancel()
    background.close()
    gc.collect()
    assert ended == [True] * 3 and capfd.readouterr().err == ""
    assert not background._thread.is_alive()


def test_the_result_and_the_error_are_those_of_the_coroutine():
    background = Background()

    async def fails():
        raise ValueError("why")

    assert background.run(asyncio.sleep(0, 7)) == 7
    with pytest.raises(ValueError, match="why"):
        background.run(fails())
    background.close()
