"""The shell scripts: what they would run, and one line for every way to use them wrongly.

A script is run where it does something itself; what Python does then is called in this process.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

ROOT = Path(__file__).parents[2]
VARIABLES = ("AVERAGE", "OUTPUT", "FORCE", "HOST", "HOST_ROOT", "PYTHON", "HF_CKPT", "TRAIN_DATA", "SAVE_PATH",
             "DATA_ROOT", "MODEL_PATH", "SINGLE_ITER", "RECIPE", "SEED", "LENGTHS", "QUESTIONS", "CLOSED_BOOK",
             "EVAL_DATASET", "EVAL_REVISION", "EVAL", "CONVERT", "POCKET_DATA")


def script(name, *arguments, **env):
    clean = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    command = ["bash", str(ROOT / name), *arguments]
    return subprocess.run(command, env=clean | env, capture_output=True, text=True, cwd=ROOT)


# --- run-train.sh ---------------------------------------------------------------------------------------------------

START = str(ROOT / "pocket" / "start")
POCKET = str(ROOT / "recipes" / "pocket.env")
OWN = {"HF_CKPT": "/m", "TRAIN_DATA": "/t.jsonl"}
FILES = {"DATA_ROOT": "/d", "LENGTHS": "50 200"}
RUN = {"SAVE_PATH": "/run", "HF_CKPT": "/m"}
ITER = RUN | {"CONVERT": "1", "SINGLE_ITER": "iter_0000001"}


@pytest.mark.parametrize("name,env,commands", [
    ("run-train.sh", {}, ["train --convert --evaluate"]),
    ("run-train.sh", OWN | {"EVAL": "0", "PUSH_TO_HUB": "a/b", "PRIVATE": "1"},
     ["train --convert --push-to-hub a/b --private"]),
    ("prepare-eval-data.sh --download", FILES | {"EVAL_REVISION": "v1"},
     ["download BytedTsinghua-SIA/hotpotqa eval_50.json eval_200.json --repo-type dataset --local-dir /d "
      "--revision v1"]),
    ("prepare-eval-data.sh --synthesize /a.json /c.json", FILES | {"QUESTIONS": "8", "SEED": "7"},
     ["synthesize --raw /a.json /c.json --lengths 50\\ 200 --output /d --questions 8 --seed 7"]),
    ("run-eval.sh", {"MODEL_PATH": "/a/model"}, ["eval --model /a/model --output results/model"]),
    ("run-eval.sh", ITER | {"RESULTS": "/r", "SAVE_FILE": "name", "FORCE": "1"},
     ["convert --input /run --hf /m --iteration iter_0000001 --output /run/hf/iter_0000001 --force",
      "eval --model /run/hf/iter_0000001 --output /r/name"]),
    ("convert-to-hf.sh", RUN | {"SINGLE_ITER": "all", "FORCE": "1", "PUSH_TO_HUB": "me/it", "PRIVATE": "1"},
     ["convert --input /run --hf /m --all --force --push-to-hub me/it --private"]),
    ("convert-to-hf.sh", RUN | {"AVERAGE": "30 iter_0000020", "OUTPUT": "/a b"},
     ["convert --input /run --hf /m --average 30 iter_0000020 --output /a\\ b"]),
])
def test_a_dry_run_prints_the_commands(name, env, commands):
    done = script(*name.split(), DRY_RUN="1", **env)
    found = [re.split(r" -m mem_agent |/bin/hf ", line)[1:] for line in done.stdout.splitlines()]
    assert [words[0].strip() for words in found if words] == commands, done.stderr
    assert done.returncode == 0 or "error: " in done.stderr, "what the command itself says of /m"


def test_a_dry_run_of_the_babilong_recipe_prints_every_step(tmp_path):
    (tmp_path / "a book.txt").write_text("It rained.")
    done = script("recipes/babilong-smollm2.sh", str(tmp_path / "a book.txt"), DRY_RUN="1", RUNS="/r", LENGTHS="1k 1m",
                  STEPS="data train grpo baselines eval report")
    found = [line for line in done.stdout.splitlines() if "mem_agent" in line or "bash run-" in line]
    assert done.returncode == 0 and [line.count("/r/") > 0 for line in found] == [True] * len(found)
    steps = ["smollm2", *["prepare"] * 8, *["run-train.sh"] * 4, *["run-eval.sh"] * 6, "run-train.sh",
             *["run-eval.sh"] * 18, "report"]
    assert len(found) == len(steps) and all(step in line for step, line in zip(steps, found, strict=True))
    assert "DATA_ROOT=/r/longest" in found[-2] and "a\\ book.txt" in found[1]


# --- wrong use ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name,env,named", [
    ("run-train.sh", {"HOST": "verl"}, "HOST="),
    ("run-train.sh", {"RECIPE": "/no/recipe.env"}, "RECIPE="),
    ("run-eval.sh", {}, "MODEL_PATH"),
    ("run-eval.sh", {"MODEL_PATH": START, "DATA_ROOT": "/tmp/none", "RECIPE": POCKET, "LENGTH": "7"},
     "/tmp/none/eval_7.json"),
    ("convert-to-hf.sh", {}, "SAVE_PATH"),

    ("prepare-eval-data.sh", {"DATA_ROOT": "/tmp/none", "LENGTHS": "50"}, "1 of the files are missing"),
])
def test_wrong_use_is_one_line_that_names_the_setting(name, env, named):
    done = script(name, **env)
    errors = [line for line in done.stderr.splitlines() if not line.startswith("== ")]
    assert done.returncode != 0 and len(errors) == 1, done.stderr
    assert errors[0].startswith("error: ") and named in errors[0]


# --- run-eval.sh on a server: not with the recipe of this machine ---------------------------------------------------

ASK = ["bash", str(ROOT / "run-eval.sh")]


@pytest.fixture
def asking(tmp_path):
    """``asking(port)``: the environment of an evaluation of one question."""
    (tmp_path / "eval_1.json").write_text(json.dumps([{"context": "c", "input": "q", "answers": ["a"]}]))
    clean = {name: value for name, value in os.environ.items() if name != "RECIPE"}
    return lambda port: clean | {
        "BASE_URL": f"http://127.0.0.1:{port}", "MODEL_PATH": START, "LENGTH": "1",
        "DATA_ROOT": str(tmp_path), "RESULTS": str(tmp_path), "SAVE_FILE": "out",
    }


def test_a_signal_ends_the_evaluation_in_order(asking):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(HANGS_AFTER_S)
        env = asking(silent.getsockname()[1]) | {"RECIPE": POCKET}
        script = subprocess.Popen(ASK, env=env, stderr=subprocess.PIPE, text=True)
        silent.accept()
        script.send_signal(signal.SIGTERM)
        _, said = script.communicate(timeout=HANGS_AFTER_S)
    assert script.returncode == 130 and said.splitlines()[-1].startswith("interrupted; ")


def test_a_running_server_is_not_asked_with_the_recipe_of_this_machine(asking, tmp_path):
    """recipes/cpu.env, the default for what a machine without a GPU serves by itself, has answers of 64 tokens."""
    router = FakeRouter(default=[5], models=({"id": "served"},))
    model = shutil.copytree(START, tmp_path / "model", ignore=shutil.ignore_patterns("mem_agent.yaml"))
    with running_beside(router):
        env = asking(router.port) | {"MODEL_PATH": str(model), "MEM_CHUNK_TOKENS": "32", "MEM_MAX_MEMORY": "8"}
        done = subprocess.run(ASK, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    settings = json.loads((tmp_path / "out" / "run.json").read_text())["settings"]
    assert settings["mem_max_final"] == 256 and settings["mem_max_question"] == 1024
