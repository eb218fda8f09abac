"""The shell scripts: what they would run, and one line for every way to use them wrongly."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mem_agent.checkpoints.hf_to_torch_dist import write_release
from mem_agent.tests.helpers.fake_host import settings
from mem_agent.tests.helpers.tiny_model import make_tiny_model

ROOT = Path(__file__).parents[2]
PYTHON = sys.executable
VARIABLES = ("AVERAGE", "OUTPUT", "FORCE", "HOST", "HOST_ROOT", "PYTHON", "HF_CKPT", "TRAIN_DATA", "SAVE_PATH",
             "DATA_ROOT", "MODEL_PATH", "SINGLE_ITER", "RECIPE", "SEED", "LENGTHS", "QUESTIONS", "CLOSED_BOOK",
             "EVAL_DATASET", "EVAL_REVISION", "EVAL", "CONVERT", "POCKET_DATA")


def script(name, *arguments, **env):
    clean = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    command = ["bash", str(ROOT / name), *arguments]
    return subprocess.run(command, env=clean | env, capture_output=True, text=True, cwd=ROOT)


# --- run-train.sh ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env,commands", [
    ({}, ["pocket --output {root}/runs/pocket-data-1 --seed 1 --task look-up", "train --evaluate"]),
    ({"SEED": "7", "POCKET_DATA": "/tmp/x y", "EVAL": "0"},
     ["pocket --output '/tmp/x y' --seed 7 --task look-up", "train --convert"]),
    ({"EVAL": "0", "CONVERT": "0", "RECIPE": "recipes/sifter.env"},
     ["pocket --output {root}/runs/sifter-data-1 --seed 1 --task sifter", "train"]),
    ({"HF_CKPT": "/m", "TRAIN_DATA": "/t.jsonl"}, ["train --convert"]),
    ({"HF_CKPT": "/m", "TRAIN_DATA": "/t.jsonl", "DATA_ROOT": "/d"}, ["train --evaluate"]),
])
def test_a_dry_run_prints_the_commands(env, commands):
    """Without a model and data of the user's they are the pocket profile's."""
    done = script("run-train.sh", DRY_RUN="1", **env)
    assert done.stdout.splitlines() == [f"mem-agent {command.format(root=ROOT)}" for command in commands], done.stderr


def test_own_settings_win_over_the_recipe(tmp_path):
    assert f"training in {ROOT}/runs/pocket-1; its engines" in script("run-train.sh", DRY_RUN="1").stderr
    done = script("run-train.sh", DRY_RUN="1", SAVE_PATH=str(tmp_path / "a run"))
    assert f"training in {tmp_path}/a run; its engines" in done.stderr


@pytest.mark.parametrize("convert", ["1", "0"])
def test_a_dry_run_of_a_host_shows_its_job_and_the_conversion(convert, tmp_path):
    done = script("run-train.sh", **settings(tmp_path, TORCH_DIST="/d"), PYTHON=PYTHON, DRY_RUN="1", CONVERT=convert)
    assert f"{tmp_path}/slime/train.py" in done.stdout
    assert ("mem_agent.checkpoints.convert" in done.stdout) == (convert == "1")


def test_a_rehearsal_takes_the_options_of_its_command(tmp_path):
    hosts = tmp_path / "hosts" / "bin"
    hosts.mkdir(parents=True)
    (hosts / "python").write_text('#!/bin/sh\necho "$*"\n')
    (hosts / "python").chmod(0o755)
    own = {"HOSTS_VENV": str(hosts.parent), "SGLANG_PYTHON": PYTHON}
    done = script("run-train.sh", "--ranks", "1", REHEARSE="1", HOST="slime", HF_CKPT="/m", DRY_RUN="1", **own)
    assert done.stdout == f"{ROOT} rehearse --dry-run --ranks 1\n", done.stderr


# --- wrong use ------------------------------------------------------------------------------------------------------

START = str(ROOT / "pocket" / "start")
FITS = {"RECIPE": str(ROOT / "recipes" / "pocket.env")}
WRONG = [
    ("run-train.sh", {"HOST": "verl"}, "HOST="),
    ("run-train.sh", {"HOST": "slime", "HOST_ROOT": "/etc", "PYTHON": PYTHON, "CONVERT": "0"}, "HOST_ROOT="),
    ("run-train.sh", {"REHEARSE": "1"}, "HOST"),
    ("run-train.sh", {"RECIPE": "/no/recipe.env"}, "RECIPE="),
    ("run-train.sh", {"HF_CKPT": "/nowhere", "TRAIN_DATA": "/nowhere.jsonl"}, "/nowhere.jsonl'"),
    ("run-eval.sh", {}, "MODEL_PATH"),
    ("run-eval.sh", {"MODEL_PATH": "/m"}, "DATA_ROOT"),
    ("run-eval.sh", {"MODEL_PATH": START, "DATA_ROOT": "/tmp/none", "RESULTS": "/tmp/none", "LENGTH": "7"} | FITS,
     "/tmp/none/eval_7.json"),
    ("run-eval.sh", {"MODEL_PATH": START, "DATA_ROOT": "/tmp/none", "BASE_URL": "http://127.0.0.1:SILENT"} | FITS,
     "http://127.0.0.1:SILENT"),
    ("run-eval.sh", {"CONVERT": "1"}, "SAVE_PATH"),
    ("run-eval.sh", {"CONVERT": "1", "SAVE_PATH": "/tmp/none", "SINGLE_ITER": "iter_0000001"}, "HF_CKPT"),
    ("convert-to-hf.sh", {}, "SAVE_PATH"),
    ("convert-to-hf.sh", {"SAVE_PATH": "/tmp", "HF_CKPT": START}, "/tmp"),
    ("convert-to-hf.sh", {"SAVE_PATH": "/tmp", "HF_CKPT": START, "SINGLE_ITER": "all", "AVERAGE": "1 2"}, "AVERAGE"),
    ("prepare-eval-data.sh", {}, "DATA_ROOT"),
    ("prepare-eval-data.sh", {"DATA_ROOT": "/tmp/none", "LENGTHS": "50"}, "1 of the files are missing"),
]


@pytest.mark.parametrize("name,env,named", WRONG)
def test_wrong_use_is_one_line_that_names_the_setting(name, env, named, silent_port):
    done = script(name, **{variable: value.replace("SILENT", str(silent_port)) for variable, value in env.items()})
    errors = [line for line in done.stderr.splitlines() if not line.startswith("== ")]
    assert done.returncode != 0 and len(errors) == 1, done.stderr
    assert errors[0].startswith("error: ") and named.replace("SILENT", str(silent_port)) in errors[0]


# --- prepare-eval-data.sh -------------------------------------------------------------------------------------------


def test_evaluation_data_is_fetched_or_made(tmp_path):
    where = {"DATA_ROOT": f"{tmp_path}/x y", "LENGTHS": "50 200", "DRY_RUN": "1"}
    done = script("prepare-eval-data.sh", "--download", **where, EVAL_REVISION="v1")
    assert "-m mem_agent download --dataset BytedTsinghua-SIA/hotpotqa --output" in done.stdout
    assert done.stdout.rstrip().endswith("x\\ y --lengths 50\\ 200 --revision v1")
    done = script("prepare-eval-data.sh", "--synthesize", "/a b.json", "/c.json", **where, QUESTIONS="8", SEED="7")
    assert "-m mem_agent synthesize --raw /a\\ b.json /c.json --lengths 50\\ 200" in done.stdout
    assert done.stdout.rstrip().endswith("--questions 8 --seed 7")
    options = ("--published-questions", "/e.json", "--distant-evidence", "100 400")
    done = script("prepare-eval-data.sh", "--synthesize", "/a.json", *options, **where)
    assert "--raw /a.json --published-questions /e.json --distant-evidence 100\\ 400 --lengths" in done.stdout
    assert "--questions 128" not in done.stdout


def test_evaluation_data_is_made_and_said_to_be_there(tmp_path):
    paragraphs = [[f"Title {n}", [f"Text {n}."]] for n in range(60)]
    row = {"_id": "5a", "question": "Who?", "answer": "yes", "supporting_facts": [["Title 0", 0]]}
    (tmp_path / "raw.json").write_text(json.dumps([row | {"context": paragraphs}]))
    made = {"DATA_ROOT": str(tmp_path), "LENGTHS": "50", "QUESTIONS": "1"}
    done = script("prepare-eval-data.sh", "--synthesize", str(tmp_path / "raw.json"), **made)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "eval_50.json").read_text())[0]["num_docs"] == 50
    done = script("prepare-eval-data.sh", **made)
    assert done.returncode == 0 and f"there:   {tmp_path}/eval_50.json" in done.stderr


# --- convert-to-hf.sh -----------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    """A folder with three checkpoints, the last of them torn, of a model; none is converted."""
    make_tiny_model(tmp_path / "model", tied=True)
    write_release(tmp_path / "model", tmp_path / "start")
    for iteration in (20, 30, 100):
        shutil.copytree(tmp_path / "start" / "release", tmp_path / f"iter_{iteration:07d}")
    (tmp_path / "iter_0000100" / ".metadata").write_bytes(b"")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("30\n")
    return tmp_path


def convert(run, **env):
    own = {"SAVE_PATH": str(run), "HF_CKPT": str(run / "model"), "AVERAGE": "", "OUTPUT": "", "FORCE": ""}
    return script("convert-to-hf.sh", **own | env)


@pytest.mark.parametrize("env,options", [
    ({}, []),
    ({"SINGLE_ITER": "100"}, ["--iteration", "100"]),
    ({"SINGLE_ITER": "all", "FORCE": "1"}, ["--all", "--force"]),
    ({"AVERAGE": "30 iter_0000020", "OUTPUT": "/a b"}, ["--average", "30", "iter_0000020", "--output", "/a b"]),
    ({"PUSH_TO_HUB": "me/it", "PRIVATE": "1"}, ["--push-to-hub", "me/it", "--private"]),
])
def test_variables_become_options(env, options):
    done = script("convert-to-hf.sh", SAVE_PATH="/run", HF_CKPT="/m", DRY_RUN="1", **env)
    command = shlex.split(done.stdout)
    assert command[command.index("convert") + 1:] == ["--input", "/run", "--hf", "/m", *options], done.stderr


def test_the_newest_is_converted_and_then_kept(run):
    assert convert(run).returncode == 0
    made = (run / "hf" / "iter_0000030" / "model.safetensors").stat().st_mtime_ns
    done = convert(run, SINGLE_ITER="30")
    assert done.returncode == 0 and f"{run}/hf/iter_0000030 already" in done.stdout
    assert (run / "hf" / "iter_0000030" / "model.safetensors").stat().st_mtime_ns == made


@pytest.mark.parametrize("env,named", [
    ({"AVERAGE": "20"}, "AVERAGE"), ({"AVERAGE": "20 iter_0000020"}, "AVERAGE"), ({"AVERAGE": "20 40"}, "40"),
    ({"SINGLE_ITER": "99"}, "99"), ({"SINGLE_ITER": "all", "OUTPUT": "/o"}, "OUTPUT"),
])
def test_what_cannot_be_converted_is_one_line_and_nothing_is_written(run, env, named):
    done = convert(run, **env)
    assert done.returncode == 1 and named in done.stderr and done.stderr.count("\n") == 1
    assert not (run / "hf").exists()


def test_one_torn_checkpoint_does_not_lose_the_others_which_can_be_averaged(run):
    done = convert(run, SINGLE_ITER="all")
    errors = [line for line in done.stderr.splitlines() if not line.startswith("== ")]
    assert done.returncode == 1 and all("iter_0000100" in line for line in errors) and len(errors) == 2
    done = convert(run, AVERAGE="20 30")
    assert done.returncode == 0 and f"{run}/hf/iter_0000020 already" in done.stdout
    weights = [load_file(folder / "model.safetensors") for folder in (run / "model", run / "hf" / "average_20_30")]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
