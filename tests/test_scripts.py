"""The shell scripts: what they would run, and one line for every way to use them wrongly."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VARIABLES = ("HF_CKPT", "TRAIN_DATA", "SAVE_PATH", "DATA_ROOT", "MODEL_PATH", "SINGLE_ITER", "RECIPE", "HOST", "SEED")


def script(name, *arguments, **env):
    clean = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    command = ["bash", str(ROOT / name), *arguments]
    return subprocess.run(command, env=clean | env, capture_output=True, text=True, cwd="/")


@pytest.fixture(autouse=True)
def ready():
    if not (ROOT / ".venv" / "installed-pack").exists():
        pytest.skip("the pack's own .venv is not set up; tests/run.sh does that")


def test_the_default_is_the_pocket_profile_from_evaluation_to_table():
    done = script("run-train.sh", DRY_RUN="1")
    assert done.returncode == 0, done.stderr
    steps = ("pocket.prepare", "host.train --check", "run-eval.sh", "host.train", "convert-to-hf.sh", "run-eval.sh")
    lines = done.stdout.splitlines()
    assert len(lines) == len(steps) and all(step in line for step, line in zip(steps, lines, strict=True))
    assert f"{ROOT}/pocket/start" in done.stdout


def test_own_settings_win_over_the_recipe():
    done = script("run-train.sh", DRY_RUN="1", SAVE_PATH="/tmp/x y", POCKET_DATA="/tmp/pocket data")
    assert "/tmp/x\\ y/hf/iter_0000000" in done.stdout and "--output /tmp/pocket\\ data" in done.stdout


def test_own_model_and_data_leave_the_pocket_out():
    done = script("run-train.sh", DRY_RUN="1", HF_CKPT="/m", TRAIN_DATA="/t.jsonl")
    assert "pocket" not in done.stdout and "no evaluation of before" in done.stderr


WRONG = [
    ("run-train.sh", {"HOST": "verl"}, "HOST='verl': allowed: auto, local, slime, vime"),
    ("run-train.sh", {"HOST": "slime"}, "HOST=slime: this script does not launch slime yet"),
    ("run-train.sh", {"HF_CKPT": "/nowhere", "TRAIN_DATA": "/nowhere.jsonl"}, "/nowhere.jsonl'"),
    ("run-eval.sh", {}, "set MODEL_PATH"),
    ("run-eval.sh", {"MODEL_PATH": "/m"}, "set DATA_ROOT"),
    ("run-eval.sh", {"MODEL_PATH": "/m", "DATA_ROOT": "/tmp", "RESULTS": "/tmp/none"}, "MODEL_PATH='/m': no such"),
    ("convert-to-hf.sh", {}, "set SAVE_PATH"),
    ("convert-to-hf.sh", {"SAVE_PATH": "/tmp"}, "set HF_CKPT"),
    ("convert-to-hf.sh", {"SAVE_PATH": "/tmp", "HF_CKPT": "/m"}, "no checkpoint has been written there"),
    ("prepare-eval-data.sh", {}, "set DATA_ROOT"),
    ("prepare-eval-data.sh", {"DATA_ROOT": "/tmp/none", "LENGTHS": "50"}, "1 of the files are missing"),
]


@pytest.mark.parametrize("name,env,message", WRONG)
def test_wrong_use_is_one_line(name, env, message):
    done = script(name, **env)
    errors = [line for line in done.stderr.splitlines() if not line.startswith("== ")]
    assert done.returncode != 0 and len(errors) == 1, done.stderr
    assert errors[0].startswith("error: ") and message in errors[0]


def test_data_that_is_there_is_said_to_be_there(tmp_path):
    (tmp_path / "eval_50.json").write_text("[]")
    done = script("prepare-eval-data.sh", DATA_ROOT=str(tmp_path), LENGTHS="50")
    assert done.returncode == 0 and f"there:   {tmp_path}/eval_50.json" in done.stderr


def test_unknown_options_are_refused(tmp_path):
    done = script("prepare-eval-data.sh", "--fetch", DATA_ROOT=str(tmp_path))
    assert done.returncode == 1 and "unknown option --fetch" in done.stderr
