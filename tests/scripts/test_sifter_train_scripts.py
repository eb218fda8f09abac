"""MemSifter's training scripts: what each would run under the seed's variables, and one line for wrong use."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWN = ("RECIPE", "DATA_RECIPE", "HF_CKPT", "MODEL_PATH", "TRAIN_DATA", "TRAIN_FILE", "TEST_FILE", "SAVE_PATH", "SEED",
       "HOST", "HOST_ROOT", "OUTPUT_DIR", "VERSION", "MODEL_DIR", "CKPT_STEPS", "KEEP_CHECKPOINTS", "REWARD", "LENGTH")


def script(name, cwd="/", **env):
    clean = {k: v for k, v in os.environ.items() if k not in OWN}
    command = ["bash", str(ROOT / "scripts" / "train" / name)]
    return subprocess.run(command, env=clean | {"DRY_RUN": "1"} | env, capture_output=True, text=True, cwd=cwd)


def commands(name, **env):
    """Each line that would be run, its words behind ``mem_agent``, or whole."""
    done = script(name, **env)
    assert done.returncode == 0, done.stderr
    lines = [shlex.split(line) for line in done.stdout.splitlines()]
    return [line[line.index("mem_agent") + 1 :] if "mem_agent" in line else line for line in lines]


@pytest.mark.parametrize("env", [{"RECIPE": "/r.yaml"}, {"DATA_RECIPE": "/r.yaml"},
                                 {"DATA_RECIPE": "/r.yaml", "RECIPE": str(ROOT / "recipes" / "cpu.env")}])
def test_data_are_prepared_under_the_seeds_names(env):
    (command,) = commands("prepare_rl_data.sh", HF_CKPT="/m", PRIMARY_DATA_DIR="/p", FALLBACK_DATA_DIR="/f",
                          OUTPUT_DIR="/o", VERSION="v1", **env)
    assert command == ["prepare-rl-data", "--recipe", "/r.yaml", "--output-dir", "/o", "--tokenizer", "/m",
                       "--fallback-data-dir", "/f", "--primary-data-dir", "/p", "--version", "v1"]


def test_data_have_defaults_of_the_pack():
    (command,) = commands("prepare_rl_data.sh", TOKENIZER="/t")
    assert command == ["prepare-rl-data", "--recipe", f"{ROOT}/recipes/memsifter/mix-v1.yaml", "--output-dir",
                       f"{ROOT}/data", "--tokenizer", "/t", "--fallback-data-dir", f"{ROOT}/data/results/bge-m3"]


def test_steps_are_iterations_that_count_from_0():
    lines = commands("collect_verl_ckpt.sh", HF_CKPT="/m", CKPTS_DIR="/c", MODEL_DIR="/o", EXP_NAME="e",
                     CKPT_STEPS="8 20")
    assert lines == [
        ["env", "-u", "AVERAGE", "SAVE_PATH=/c", "HF_CKPT=/m", f"SINGLE_ITER={step - 1}", f"OUTPUT=/o/e-step-{step}",
         "bash", f"{ROOT}/convert-to-hf.sh"] for step in (8, 20)]


def test_checkpoints_are_merged_under_the_seeds_names():
    (command,) = commands("merge_ckpts.sh", MODEL_DIR="/o", MODEL_NAME="e", CKPT_STEPS="8 20")
    assert command == ["average", "--inputs", "/o/e-step-8", "/o/e-step-20", "--output", "/o/e-merged"]
    (command,) = commands("merge_ckpts.sh", PROJECT_NAME="P", FORCE="1")
    name = f"{ROOT}/models/P/MemSifter-Qwen3-4B-Task-Reward"
    assert command == ["average", "--inputs", *(f"{name}-step-{n}" for n in (20, 30, 40)), "--output",
                       f"{name}-merged", "--force"]


def test_a_merge_of_real_folders_is_their_mean(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    for step, value in ((1, 1.0), (2, 4.0)):
        folder = tmp_path / f"e-step-{step}"
        folder.mkdir()
        save_file({"w": torch.full((3,), value, dtype=torch.bfloat16)}, folder / "model.safetensors",
                  {"format": "pt"})
        (folder / "config.json").write_text('{"model_type": "qwen3"}')
        (folder / "tokenizer.json").write_text("{}")
    done = script("merge_ckpts.sh", DRY_RUN="0", MODEL_DIR=str(tmp_path), MODEL_NAME="e", CKPT_STEPS="1 2")
    assert done.returncode == 0, done.stderr
    merged = load_file(tmp_path / "e-merged" / "model.safetensors")["w"]
    assert merged.dtype == torch.bfloat16 and merged.tolist() == [2.5] * 3


RECIPE = {"RECIPE": str(ROOT / "recipes" / "cpu.env"), "HOST": "local"}


@pytest.fixture
def shards(tmp_path):
    tmp_path = tmp_path / "a b"
    tmp_path.mkdir()
    for name in ("train_0.parquet", "train_1.parquet", "test.parquet", "eval_a.json", "eval_b.json"):
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize("written", [
    "{0}", '["{0}/train_0.parquet","{0}/train_1.parquet"]', "[ '{0}/train_0.parquet', '{0}/train_1.parquet' ]",
])
def test_training_takes_the_seeds_names(shards, written):
    files = written.format(shards)
    done = script("qwen3_4b_task_reward.sh", MODEL_PATH="/m", TRAIN_FILE=files, CKPTS_DIR="/tmp/none/c",
                  TEST_FILE=f"{shards}/test.parquet", **RECIPE)
    assert done.returncode == 0, done.stderr
    assert "-m mem_agent train --evaluate" in done.stdout
    assert "evaluate /m before and /tmp/none/c/hf/iter_* after, into /tmp/none/c/eval" in done.stderr


def test_every_round_is_shown(tmp_path):
    (tmp_path / "r.yaml").write_text("train: {a: 6}\ntest: {a: 2}")
    done = script("curriculum.sh", HF_CKPT="/m", DATA_RECIPE=str(tmp_path / "r.yaml"), OUTPUT_DIR="/o", ROUNDS="2",
                  CURRICULUM_DIR=str(tmp_path / "c"), EMBEDDING_MODEL_NAME="minilm", AVERAGE_BEST="2", **RECIPE)
    assert done.returncode == 0, done.stderr
    shown = [line for line in done.stdout.splitlines() if line.startswith("#")]
    assert shown == [f"# round {n}: {name}" for n in (1, 2) for name in
                     ("prepare", "train", "convert", "validate-iter_*", "average", "rank")][:-1]
    assert f"HF_CKPT={tmp_path}/c/round_1/model" in done.stdout and not (tmp_path / "c").exists()


WRONG = [
    ("prepare_rl_data.sh", {}, "set HF_CKPT (or TOKENIZER)"),
    ("prepare_rl_data.sh", {"HF_CKPT": "/m", "RECIPE": "/none.env"}, "RECIPE='/none.env' cannot be read"),
    ("collect_verl_ckpt.sh", {}, "set HF_CKPT"),
    ("collect_verl_ckpt.sh", {"HF_CKPT": "/m", "CKPT_STEPS": "20 00"}, "'00' is no step; they count from 1"),
    ("qwen3_4b_task_reward.sh", {"MODEL_PATH": "/m", **RECIPE}, "set TRAIN_FILE"),
    ("qwen3_4b_task_reward.sh", {"TRAIN_FILE": '["/none/train_0.parquet"]', **RECIPE}, "names 1 shards, /none has 0"),
    ("curriculum.sh", RECIPE, "set HF_CKPT"),
    ("curriculum.sh", {"HF_CKPT": "/m", "DATA_RECIPE": "/none.yaml", **RECIPE}, "/none.yaml: "),
]


@pytest.mark.parametrize("name,env,message", WRONG)
def test_wrong_use_is_one_line(name, env, message):
    done = script(name, **env)
    errors = [line for line in done.stderr.splitlines() if not line.startswith("== ")]
    assert done.returncode != 0 and len(errors) == 1, done.stderr
    assert errors[0].startswith("error: ") and message in errors[0]
