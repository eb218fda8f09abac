"""The whole loop with real servers: vLLM behind vllm-router, megatron-core, two GRPO steps. Faults: `tests/faults`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from mem_agent.config import load_yaml
from mem_agent.pocket.prepare import prepare
from mem_agent.tests.helpers.patience import HANGS_AFTER_S
from mem_agent.training.log import read_metrics

START = Path(__file__).parents[2] / "pocket" / "start"

pytestmark = pytest.mark.servers


def settings(tmp_path: Path, save: str, **more: object) -> dict[str, str]:
    prepare(tmp_path / "data", 1)
    values = {
        "HF_CKPT": START, "TRAIN_DATA": tmp_path / "data" / "train.jsonl", "SAVE_PATH": tmp_path / save,
        "MEM_PROMPTS": START.parent / "prompts.yaml", "MEM_CHUNK_TOKENS": 32, "MEM_MAX_MEMORY": 8, "MEM_MAX_FINAL": 12,
        "MEM_MAX_QUESTION": 16, "ENGINE_MAX_LEN": 512, "ENGINE_ARGS": "--kv-cache-memory-bytes 67108864",
        "NUM_ROLLOUT": 2, "ROLLOUT_BATCH_SIZE": 4, "N_SAMPLES_PER_PROMPT": 4, "LR": 3e-4, "KL_COEF": 0.01,
        "SAVE_INTERVAL": 1, "OMP_NUM_THREADS": 1, "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": 0,
    }
    return {**os.environ, **{k: str(v) for k, v in (values | more).items()}}


def finish(env: dict[str, str]) -> str:
    command = [sys.executable, "-m", "mem_agent.training.train"]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=HANGS_AFTER_S)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Two rollouts in one go."""
    folder = tmp_path_factory.mktemp("straight")
    output = finish(settings(folder, "run"))
    return folder / "run", output


def test_two_steps_train_on_what_the_engines_sampled(straight):
    save, output = straight
    first, second = read_metrics(save)
    assert first["trajectories"] == 16 and first["failed"] == 0
    assert first["rows"] == 64 and first["turns"] == 4
    assert first["rollout_log_prob_gap"] < 1e-4 and second["rollout_log_prob_gap"] < 1e-4
    assert first["kl"] == 0 and second["kl"] > 0 and first["grad_norm"] > 0
    assert first["prefix_cache_hit_rate"] > 0.3
    assert (save / "latest_checkpointed_iteration.txt").read_text() == "1" and (save / "iter_0000001").is_dir()
    assert "rollout 2/2 | reward" in output
    assert load_yaml(save / "mem_agent.yaml").mem_chunk_tokens == 32


def test_two_data_parallel_processes_take_the_same_steps(straight, tmp_path):
    finish(settings(tmp_path, "run", TRAIN_PROCS=2))
    for one, two in zip(read_metrics(straight[0]), read_metrics(tmp_path / "run"), strict=True):
        assert {k: one[k] for k in ("reward", "tokens", "rows")} == {k: two[k] for k in ("reward", "tokens", "rows")}
        assert [two[k] for k in ("loss", "kl", "grad_norm")] == pytest.approx(
            [one[k] for k in ("loss", "kl", "grad_norm")], rel=1e-3, abs=1e-6
        )
    left = [one.cmdline() for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(one.info["cmdline"])]
    assert left == []
