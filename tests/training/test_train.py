"""What the embedded host refuses before it starts, what it finds by itself, how it ends; one run with servers."""

import json
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from mem_agent.checkpoints import precision
from mem_agent.checkpoints.precision import with_train_dtype
from mem_agent.config import Config, ConfigError, load_yaml
from mem_agent.serving.servers import engine_options
from mem_agent.system.errors import MemAgentError
from mem_agent.system.processes import ChildProcess, ProcessError
from mem_agent.tests.faults.drill import drill, scene
from mem_agent.tests.faults.drill import settings as pocket_settings
from mem_agent.tests.helpers.fake_host import make_model
from mem_agent.tests.helpers.patience import wait_for
from mem_agent.training import ranks
from mem_agent.training.log import read_metrics
from mem_agent.training.ranks import with_train_procs
from mem_agent.training.resume import Rollout
from mem_agent.training.train import checked, learn, main

POCKET = Path(__file__).parents[2] / "pocket" / "start"
ROW = {"prompt": "q", "label": "a", "metadata": {"context": "c", "ground_truth": ["a"]}}


def settings(tmp_path, **env):
    """The environment of a run that could start; model and data are made."""
    (tmp_path / "train.jsonl").write_text(f"{json.dumps(ROW)}\n" * 9)
    (tmp_path / "dev.jsonl").write_text(json.dumps(ROW | {"metadata": ROW["metadata"] | {"task": "multi-hop"}}))
    make_model(tmp_path / "model", "qwen3-0.6b")
    return {"TRAIN_DATA": str(tmp_path / "train.jsonl"), "HF_CKPT": str(tmp_path / "model")} | env


@pytest.mark.parametrize("env,message", [
    ({"HOST": "slime"}, "HOST=slime"), ({"TRAIN_DATA": "/nowhere.jsonl"}, "/nowhere.jsonl"),
    ({"FULLY_ASYNC": "1"}, "FULLY_ASYNC"),
    ({"HF_CKPT": "/nowhere"}, "HF_CKPT='/nowhere'"), ({"MEM_CHUNK_TOKENS": "50000"}, "MEM_CHUNK_TOKENS=50000"),
])
def test_settings_that_nothing_could_come_of_are_refused(tmp_path, env, message):
    env = {name: value.replace("TMP", str(tmp_path)) for name, value in env.items()}
    with pytest.raises(MemAgentError, match=message):
        checked(Config.from_env(settings(tmp_path) | env))


# --- what it finds by itself -----------------------------------------------------------------------------------------

SMALL, LARGE = 2_500_000, 135_000_000


@pytest.mark.parametrize("parameters,cores,gib,rate,given,copies,dtype", [
    (SMALL, 64, 24, 5.0, {}, 1, "float32"), (LARGE, 16, 24, 1.9, {}, 2, "bfloat16"),
    (LARGE, 1, 24, 1.4, {}, 1, "float32"), (LARGE, 4, 24, 1.4, {"tp": 2}, 4, "float32"),
    (SMALL, 64, 24, None, {}, 1, "float32"), (LARGE, 64, 24, None, {}, 1, "bfloat16"),  # on a GPU
    (LARGE, 2, 8, 1.4, {}, 1, "float32"),  # two copies of 3 GiB would not leave half of it
])
def test_a_large_model_gets_a_second_copy_where_it_fits_and_bfloat16_where_that_is_faster(
    parameters, cores, gib, rate, given, copies, dtype, monkeypatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=gib * 2**30))
    monkeypatch.setattr("torch.cuda.is_available", lambda: rate is None)
    monkeypatch.setattr(precision, "product_rate", lambda dtype: rate if dtype == torch.bfloat16 else 1.0)
    for module in (precision, ranks):
        monkeypatch.setattr(module, "parameter_count", lambda config: parameters)
    settled = with_train_dtype(with_train_procs(Config(**given), POCKET), POCKET, "auto")
    options = engine_options(settled, "cpu" if rate else "cuda")
    assert (settled.train_procs, settled.train_dtype) == (copies, dtype) == (copies, options[1])
    assert with_train_dtype(Config(), POCKET, "bfloat16").train_dtype == "bfloat16"  # a run that continues


# --- how it ends -----------------------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_ends_the_run_before_anything_is_saved_or_sent():
    data = {"tokens": [[1, 2]], "response_lengths": [1], "loss_masks": [[1]], "rollout_log_probs": [[0.0]],
            "rewards": [1.0], "rollout_ids": [0], "rollout_mask_sums": [1]}
    found = {"loss": math.inf, "grad_norm": math.nan}
    diverged = SimpleNamespace(log_probs=lambda rows: [], train_step=lambda *_: found)
    config = Config(kl_coef=0.0, save_path="/runs/mine", global_batch_size=1)
    with pytest.raises(MemAgentError, match=r"LR.*/runs/mine"):
        learn(config, diverged, Rollout(data, 1, {}))


def test_a_rank_that_died_is_named_in_place_of_the_error_of_rank_zero(tmp_path, monkeypatch):
    def start(name, *_):
        command = [sys.executable, "-c", "import sys; print('MemoryError: none left'); sys.exit(3)"]
        started.append(ChildProcess(name, command, os.environ, tmp_path / "log"))
        return started[-1]

    started: list[ChildProcess] = []
    monkeypatch.setattr(ranks, "ChildProcess", start)
    monkeypatch.setattr(ranks, "DEATH_SEEN_S", 0.0)
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ProcessError, match=r"trainer-1 .* code 3; log .*: MemoryError: none left"):
        with ranks.other_ranks(Config(train_procs=2), []):
            wait_for(lambda: started[0].exit_code)
            raise RuntimeError("Connection closed by peer")


def test_a_run_that_goes_on_leaves_its_settings_as_they_were_resolved(tmp_path, monkeypatch, capsys):
    """A converted model takes them along: those of a run that was refused never trained it."""
    no_engine = mock.Mock(**{"begin.side_effect": ConfigError("no engine")})
    monkeypatch.setattr("mem_agent.training.train.Rollouts", lambda config, evaluate: no_engine)
    monkeypatch.setattr("mem_agent.training.trainer.Trainer", lambda config: None)
    save = tmp_path / "save"
    env = settings(tmp_path, SAVE_PATH=str(save), MEM_CHUNK_TOKENS="77", SEED="5", TRAIN_DATA="train.jsonl")
    monkeypatch.chdir(tmp_path)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert main(["--check"]) == 0 and not save.exists()
    assert main([]) == 1 and "no engine" in capsys.readouterr().err
    left = load_yaml(save / "mem_agent.yaml")
    assert left == checked(Config.from_env()).replace(train_data=f"{tmp_path}/train.jsonl") and left.engine_max_len
    for name in env:
        monkeypatch.delenv(name)
    monkeypatch.chdir("/")
    assert main(["--check", "--config", str(save / "mem_agent.yaml")]) == 0


@pytest.mark.servers
def test_two_processes_train_on_what_the_engines_sampled():
    """vLLM behind vllm-router, megatron-core, two GRPO steps; nothing is left running. Faults: `tests/faults`."""
    with scene() as place:
        env = pocket_settings(place, NUM_ROLLOUT=2, ROLLOUT_BATCH_SIZE=4, TRAIN_PROCS=2)
        drill(place, env, [])
        first, second = read_metrics(place.save)
    assert (first["trajectories"], first["failed"], first["rows"], first["turns"]) == (16, 0, 64, 4)
    assert first["rollout_log_prob_gap"] < 1e-4 and second["rollout_log_prob_gap"] < 1e-4
    assert first["kl"] == 0 and second["kl"] > 0 and first["grad_norm"] > 0
    assert first["prefix_cache_hit_rate"] > 0.3
