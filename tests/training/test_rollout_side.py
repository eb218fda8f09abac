"""Seeds are a function of run and trajectory, other weights never train, and what servers lose is sampled again."""

import json
import random
import threading
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import aiohttp
import pytest

from mem_agent import rollout_client
from mem_agent.config import Config, ConfigError
from mem_agent.hooks import rewards
from mem_agent.hooks.host import HostArgs, embedded_args
from mem_agent.hooks.sample import Sample
from mem_agent.rollout_client import Dialect, Endpoint
from mem_agent.system.processes import FleetError
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside, vllm_answer
from mem_agent.training import rollout_side
from mem_agent.training.group_rollout import RolloutError
from mem_agent.training.rollout_side import RolloutSide, mask_stale, training_sampling

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


# --- servers that fail inside a rollout ----------------------------------------------------------------------------


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
def side_of(fleet, folder, monkeypatch, **settings):
    monkeypatch.setattr(rollout_side, "Fleet", lambda *args, **kwargs: fleet)
    with running_beside(fleet.router):
        side = RolloutSide(pocket_config(folder, **settings))
        try:
            yield side
        finally:
            side.close()


EVERY, SOME = (lambda number: True), (lambda number: number == 11)
REPAIRED = ["alive?", "alive?", "start over"]


@pytest.mark.parametrize("spoilt", [EVERY, SOME], ids=["every", "some"])
@pytest.mark.parametrize("fault", [503, "drop", "hold", "abort", "garbage"])
def test_a_rollout_that_lost_trajectories_to_a_replaced_server_is_sampled_again(fault, spoilt, tmp_path, monkeypatch):
    fleet = FakeFleet(fault, spoilt)
    if fault == "hold":  # good requests that end with it are sampled again as well
        monkeypatch.setattr(rollout_client, "TIMEOUT_S", 5.0)
    with side_of(fleet, tmp_path, monkeypatch) as side:
        broken = side.rollout(0, 0)
        assert fleet.calls == REPAIRED and broken.metrics["repeated"] == 1 and broken.metrics["failed"] == 0
        assert side.journal.read(0) == broken
        side.journal.forget(0)
        asked = [Path(side.config.save_path) / "eval" / f"during-iter_000000{number}" for number in (0, 1)]
        for folder in asked:
            folder.mkdir(parents=True)
        unbroken = side.rollout(0, 0)
        assert not any(folder.exists() for folder in asked)  # answers of other weights
    assert unbroken.metrics["repeated"] == 0 and len(set(map(tuple, unbroken.train_data["tokens"]))) > 8
    assert replace(broken, metrics=broken.metrics | {"repeated": 0}) == unbroken


def test_losses_while_all_servers_are_well_stay_in_the_batch(tmp_path, monkeypatch):
    fleet = FakeFleet(503, SOME, repairs=(0, 0))
    with side_of(fleet, tmp_path, monkeypatch) as side:
        metrics = side.rollout(0, 0).metrics
    assert fleet.calls == ["alive?", "alive?"] and metrics["repeated"] == 0 and metrics["failed/server_error"] > 0


def test_failures_of_the_request_itself_ask_nothing_of_the_servers(tmp_path, monkeypatch):
    fleet = FakeFleet(400, SOME)
    with side_of(fleet, tmp_path, monkeypatch) as side:
        metrics = side.rollout(0, 0).metrics
    assert fleet.calls == ["alive?"] and metrics["repeated"] == 0 and metrics["failed/rejected"] > 0


@pytest.mark.parametrize("repairs,error", [
    ((0, 0), (RolloutError, "all 8 trajectories of a rollout failed; the first: .* HTTP 503")),
    ((0, FleetError("3 servers were replaced")), (FleetError, "3 servers were replaced")),
])
def test_a_rollout_that_cannot_be_repeated_is_not_journalled(repairs, error, tmp_path, monkeypatch):
    with side_of(FakeFleet(503, EVERY, repairs), tmp_path, monkeypatch) as side:
        with pytest.raises(error[0], match=error[1]):
            side.rollout(0, 0)
        assert side.journal.read(0) is None


def test_metrics_are_those_of_the_kept_groups_and_one_says_what_all_earned(tmp_path, monkeypatch):
    """Two groups of reward 1 are kept, and two of 0 dropped."""
    monkeypatch.setattr(rollout_side.hooks, "nonzero_std", lambda args, group: group[0].group_index > 1)

    async def reward(args, sample, **kwargs):
        return float(sample.group_index > 1)

    monkeypatch.setattr(rollout_side.hooks, "reward_func", reward)
    with side_of(FakeFleet(503, lambda number: False), tmp_path, monkeypatch, dynamic_filter="nonzero_std") as side:
        metrics = side.rollout(0, 0).metrics
    assert (metrics["reward"], metrics["sampled_reward"], metrics["dropped_groups"]) == (1.0, 0.5, 2)
    assert metrics["trajectories"] == 8 and metrics["mixed_groups"] == 0.0 and side.speed["tokens_per_second"] > 0


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
    with side_of(fleet, tmp_path, monkeypatch, reward=f"{tmp_path}/own.py:Own") as side:
        with pytest.raises(ConfigError, match="before rollout 3 is not there"):
            side.rollout(3, 0)
        assert fleet.router.requests == []
        assert side.rollout(0, 0).metrics["failed"] == 0


KNN = {"mem_ir": "knn+", "mem_ir_args": "warmup=0 model=hashing"}


def test_an_intrinsic_reward_is_scored_off_the_event_loop_and_goes_on_in_another_process(tmp_path, monkeypatch):
    threads, score = [], rewards.apply
    monkeypatch.setattr(rollout_side, "mask_stale", lambda samples, version: 0)  # the fake's weights are always 0

    def apply(host, samples, number):
        if number is not None:  # else it is the converter, who finds all done
            threads.append(threading.current_thread().name)
        score(host, samples, number)

    given = {}
    for name, killed in (("unbroken", ()), ("killed", (1, 2))):
        (tmp_path / name).mkdir()
        with side_of(FakeFleet(503, lambda number: False), tmp_path / name, monkeypatch, **KNN) as side:
            monkeypatch.setattr(rollout_side.rewards, "apply", apply)
            given[name] = []
            for number in range(3):
                if number in killed:
                    rewards.RUNS.clear()  # as in a fresh process
                given[name].append(side.rollout(number, 2 * number))
            monkeypatch.setattr(rollout_side.rewards, "apply", score)
    assert [one.train_data for one in given["unbroken"]] == [one.train_data for one in given["killed"]]
    metrics = given["killed"][-1].metrics
    assert metrics["intrinsic/failure_questions"] == 1 and metrics["intrinsic/failure_vectors"] == 24
    assert metrics["reward/intrinsic_explore"] > 0
    assert len(threads) == 6 and "rollouts" not in threads


def test_a_torn_record_whose_state_is_gone_sets_a_run_with_a_state_back_to_one_that_is_there(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(rollout_side, "mask_stale", lambda samples, version: 0)  # the fake's weights are always 0
    with side_of(FakeFleet(503, lambda number: False), tmp_path, monkeypatch, **KNN) as side:
        given = [side.rollout(number, 2 * number) for number in range(4)]
    assert not (tmp_path / "run" / "reward_state" / "0000001").exists()  # two are kept, and those of checkpoints
    (tmp_path / "run" / "rollouts" / "rollout_0000002.json").write_text("{")
    rewards.RUNS.clear()  # as in a fresh process
    with side_of(FakeFleet(503, lambda number: False), tmp_path, monkeypatch, **KNN) as side:
        again = [side.rollout(number, 2 * number) for number in range(4)]
        assert len(side.fleet.router.requests) == 4 * 32
    assert [one.train_data for one in again] == [one.train_data for one in given]
    assert "state before rollout 3 is not there: those from 1 on are sampled again" in caplog.text
