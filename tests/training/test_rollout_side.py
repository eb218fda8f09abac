"""Sampling seeds are a function of run and trajectory; trajectories of other weights never train."""

import pytest

from mem_agent.config import Config
from mem_agent.hooks.engine_api import Dialect, Endpoint
from mem_agent.hooks.host import HostArgs, embedded_args
from mem_agent.hooks.sample import Sample
from mem_agent.training.group_rollout import RolloutError
from mem_agent.training.rollout_side import mask_stale, training_sampling


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
