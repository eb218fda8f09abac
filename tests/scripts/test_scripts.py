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
from mem_agent.tests.helpers.tiny_model import make_tiny_model

ROOT = Path(__file__).parents[2]
PYTHON = sys.executable
VARIABLES = ("AVERAGE", "OUTPUT", "FORCE", "HOST", "HOST_ROOT", "PYTHON", "HF_CKPT", "TRAIN_DATA", "SAVE_PATH",
             "DATA_ROOT", "MODEL_PATH", "SINGLE_ITER", "RECIPE", "SEED", "LENGTHS", "QUESTIONS", "CLOSED_BOOK",
             "EVAL_DATASET", "EVAL_REVISION")


def script(name, *arguments, **env):
    clean = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    command = ["bash", str(ROOT / name), *arguments]
    return subprocess.run(command, env=clean | env, capture_output=True, text=True, cwd="/")


def test_the_default_is_the_pocket_profile_from_evaluation_to_table(tmp_path):
    done = script("run-train.sh", DRY_RUN="1", SAVE_PATH=str(tmp_path / "a run"))
    assert done.returncode == 0, done.stderr
    steps = ("-m mem_agent pocket", "-m mem_agent train --evaluate")
    lines = done.stdout.splitlines()
    assert len(lines) == len(steps) and all(step in line for step, line in zip(steps, lines, strict=True))
    run = f"{tmp_path}/a run"
    assert f"evaluate {ROOT}/pocket/start before and {run}/hf/iter_* after, into {run}/eval" in done.stderr


def test_a_recipe_is_read_once_and_the_users_own_variables_win(tmp_path):
    """Scripts that a script starts take neither its values again nor those of cpu.env, the default there."""
    recipe = tmp_path / "own.env"
    recipe.write_text("# a comment\nMEM_CHUNK_TOKENS=77\nBASE_URL=http://h\nSEED=3\n"
                      "TASK_ARGS=a=1 s='b c'\nSAVE_PATH=${PACK_DIR}/runs/${SEED}-${OTHER:-no}\n")
    inner = tmp_path / "script.sh"
    inner.write_text(
        f"source '{ROOT}/_common.sh'\nhas_gpu() {{ false; }}\nRECIPE=\"${{RECIPE:-$1}}\"\ndefault_recipe\n"
        "printf '%s|' \"$MEM_CHUNK_TOKENS\" \"${MEM_MAX_QUESTION:-}${BASE_URL:-}\" \"$TASK_ARGS\" \"$SAVE_PATH\"\n"
        f"[ -z \"$1\" ] || env -u BASE_URL bash '{inner}' ''\n"
        f"'{PYTHON}' -c 'from mem_agent.config import Config; print(Config.from_env().mem_chunk_tokens)'\n"
    )
    env = {name: value for name, value in os.environ.items() if name not in VARIABLES} | {"SEED": "7"}
    done = subprocess.run(["bash", str(inner), str(recipe)], env=env, capture_output=True, text=True)
    rest = f"a=1 s='b c'|{ROOT}/runs/7-no|"
    assert done.stdout == f"77|http://h|{rest}77||{rest}77\n77\n", done.stderr


@pytest.mark.parametrize("line", ["echo hello", "[AGENT=x] SEED=1", "A B=1"])
def test_a_line_that_is_no_setting_is_refused(line, tmp_path):
    (tmp_path / "own.env").write_text(f"{line}\n")
    done = script("run-eval.sh", RECIPE=str(tmp_path / "own.env"))
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "is not a line NAME=value" in done.stderr


def test_nothing_in_a_recipe_is_run(tmp_path):
    (tmp_path / "own.env").write_text(f"SEED=$(touch {tmp_path}/ran)`touch {tmp_path}/ran`; touch {tmp_path}/ran\n")
    script("run-eval.sh", RECIPE=str(tmp_path / "own.env"))
    assert not (tmp_path / "ran").exists()


def test_a_python_without_the_library_for_recipes_says_which(tmp_path):
    (tmp_path / "dotenv.py").write_text("raise ImportError")
    code = f"source '{ROOT}/_common.sh'; load_recipe '{ROOT}/recipes/cpu.env'"
    done = subprocess.run(["bash", "-c", code], env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True,
                          text=True)
    assert done.returncode == 1 and "pip install python-dotenv" in done.stderr and done.stderr.count("\n") == 1


def test_own_settings_win_over_the_recipe():
    done = script("run-train.sh", DRY_RUN="1", SAVE_PATH="/tmp/x y", POCKET_DATA="/tmp/pocket data")
    assert "training in /tmp/x y; its engines" in done.stderr and "--output /tmp/pocket\\ data" in done.stdout


def test_own_model_and_data_leave_the_pocket_out():
    done = script("run-train.sh", DRY_RUN="1", HF_CKPT="/m", TRAIN_DATA="/t.jsonl")
    assert "pocket" not in done.stdout and "no evaluation of before" in done.stderr
    assert done.stdout.endswith("-m mem_agent train --convert \n")
    done = script("run-train.sh", DRY_RUN="1", EVAL="0", SAVE_PATH="/tmp/none")
    assert "-m mem_agent train --convert \n" in done.stdout and "EVAL=0" in done.stderr


PYTHON_OF_AN_ENVIRONMENT = """#!/bin/sh
case "$*" in
    *"-m mem_agent train"*) echo train >>"$CALLS"; exit "$ENDS" ;;
    *"-m mem_agent "*) echo "$*" | sed 's/.*-m mem_agent //' >>"$CALLS"; echo "256 0" ;;
    *) exec "$REAL" "$@" ;;
esac
"""
WORDS = ("train", "convert", "eval", "--check", "--table", "card", "--push-to-hub")
AFTER = ["train", "convert", "eval --check", "eval --table", "eval --check", "eval --table", "eval --table", "card"]


def environment(bin_folder, calls, ends):
    """Its trainer ends with ``ends``; what else is called stands in the file ``calls``."""
    (bin_folder / "python").write_text(PYTHON_OF_AN_ENVIRONMENT)
    (bin_folder / "python").chmod(0o755)
    return {"VENV": str(bin_folder.parent), "CALLS": str(calls), "ENDS": str(ends), "REAL": PYTHON}


@pytest.mark.parametrize("ends,env,calls", [
    (0, {}, ["train", "eval --table", "card"]),
    (4, {}, AFTER),
    (4, {"EVAL": "0"}, ["train", "convert", "eval --table", "card"]),
    (0, {"PUSH_TO_HUB": "a/b"}, ["train", "eval --table", "card --push-to-hub"]),
    (1, {}, ["train"]),
    (130, {}, ["train"]),
])
def test_what_follows_training_as_it_ends(tmp_path, ends, env, calls):
    """4: it had ended in an earlier run, which may have left the rest undone."""
    venv, run = tmp_path / "venv" / "bin", tmp_path / "run"
    for folder in (venv, run / "eval" / "before", run / "eval" / "after-iter_0000001", run / "iter_0000001",
                   run / "hf" / "iter_0000001"):
        folder.mkdir(parents=True)
    (run / "hf" / "iter_0000001" / "README.md").touch()
    (run / "latest_checkpointed_iteration.txt").write_text("1")
    own = environment(venv, tmp_path / "calls", ends)
    done = script("run-train.sh", **own, SAVE_PATH=str(run), HF_CKPT="/m", TRAIN_DATA="/t", DATA_ROOT="/d", **env)
    assert done.returncode == (0 if ends == 4 else ends), done.stderr
    found = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
    kinds = [" ".join(word for word in line if word in WORDS) for line in found]
    assert kinds == calls


def test_a_command_that_ends_at_once_gives_its_exit_status():
    """The shell has already reaped it when it first asks for it: the `kill` of this shell takes a while."""
    slow = 'source "$0/_common.sh"; kill() { sleep 0.3; builtin kill "$@"; }; run_and_forward_signals sh -c "exit 7"'
    assert subprocess.run(["bash", "-c", slow, str(ROOT)]).returncode == 7


CONVERT = {"SAVE_PATH": "/tmp/none", "HF_CKPT": "/m", "DRY_RUN": "1"}
START = str(ROOT / "pocket" / "start")
FITS = {"RECIPE": str(ROOT / "recipes" / "pocket.env")}
WRONG = [
    ("run-train.sh", {"HOST": "verl"}, "HOST='verl': allowed: auto, local, slime, vime"),
    ("run-train.sh", {"HOST_ROOT": "/etc"}, "HOST_ROOT='/etc': no checkout of slime or vime"),
    ("run-train.sh", {"HOST": "slime", "HOST_ROOT": "/etc", "PYTHON": PYTHON, "CONVERT": "0"}, "no checkout of slime"),
    ("run-train.sh", {"RECIPE": "/no/recipe.env"}, "RECIPE='/no/recipe.env' cannot be read"),
    ("run-train.sh", {"HF_CKPT": "/nowhere", "TRAIN_DATA": "/nowhere.jsonl"}, "/nowhere.jsonl'"),
    ("run-eval.sh", {}, "set MODEL_PATH"),
    ("run-eval.sh", {"MODEL_PATH": "/m"}, "set DATA_ROOT"),
    ("run-eval.sh", {"MODEL_PATH": "/m", "DATA_ROOT": "/tmp", "RESULTS": "/tmp/none"}, "MODEL_PATH='/m': no such"),
    ("run-eval.sh", {"MODEL_PATH": START, "DATA_ROOT": "/tmp/none", "RESULTS": "/tmp/none", "LENGTH": "7"} | FITS,
     "/tmp/none/eval_7.json: no such file"),
    ("run-eval.sh", {"MODEL_PATH": START, "DATA_ROOT": "/tmp/none", "BASE_URL": "http://127.0.0.1:SILENT"} | FITS,
     "http://127.0.0.1:SILENT: nothing answers there"),
    ("run-eval.sh", {"CONVERT": "1"}, "CONVERT=1 needs SAVE_PATH and SINGLE_ITER"),
    ("convert-to-hf.sh", {}, "set SAVE_PATH"),
    ("convert-to-hf.sh", {"SAVE_PATH": "/tmp"}, "set HF_CKPT"),
    ("convert-to-hf.sh", {"SAVE_PATH": "/tmp", "HF_CKPT": "/m"}, "no checkpoint has been written there"),
    ("convert-to-hf.sh", CONVERT | {"SINGLE_ITER": "all", "AVERAGE": "1 2"}, "set AVERAGE or SINGLE_ITER, not both"),
    ("convert-to-hf.sh", CONVERT | {"SINGLE_ITER": "all"}, "/tmp/none: no iter_* checkpoints"),
    ("convert-to-hf.sh", CONVERT | {"SINGLE_ITER": "99"}, "no checkpoint iter_0000099; there are: none"),
    ("prepare-eval-data.sh", {}, "set DATA_ROOT"),
    ("prepare-eval-data.sh", {"DATA_ROOT": "/tmp/none", "LENGTHS": "50"}, "1 of the files are missing"),
    ("prepare-eval-data.sh", {"DATA_ROOT": "/tmp/none", "LENGTHS": "50 x"}, "'x' is not a number of documents"),
]


@pytest.mark.parametrize("name,env,message", WRONG)
def test_wrong_use_is_one_line(name, env, message, silent_port):
    done = script(name, **{variable: value.replace("SILENT", str(silent_port)) for variable, value in env.items()})
    errors = [line for line in done.stderr.splitlines() if not line.startswith("== ")]
    assert done.returncode != 0 and len(errors) == 1, done.stderr
    assert errors[0].startswith("error: ") and message.replace("SILENT", str(silent_port)) in errors[0]


def test_data_that_is_there_is_said_to_be_there(tmp_path):
    (tmp_path / "eval_50.json").write_text("[]")
    done = script("prepare-eval-data.sh", DATA_ROOT=str(tmp_path), LENGTHS="50")
    assert done.returncode == 0 and f"there:   {tmp_path}/eval_50.json" in done.stderr


def test_an_evaluation_serves_a_model_or_asks_a_running_server():
    model = {"MODEL_PATH": "/m", "DATA_ROOT": "/tmp", "RESULTS": "/r", "DRY_RUN": "1"}
    served, asked = script("run-eval.sh", **model), script("run-eval.sh", BASE_URL="https://host/v1", **model)
    assert "-m mem_agent serve-engines --model /m" in served.stdout and "--output /r/m --url URL" in served.stdout
    assert asked.stdout.endswith("/python -P -m mem_agent eval --model /m --output /r/m \n")


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


def test_evaluation_data_is_made(tmp_path):
    paragraphs = [[f"Title {n}", [f"Text {n}."]] for n in range(60)]
    row = {"_id": "5a", "question": "Who?", "answer": "yes", "supporting_facts": [["Title 0", 0]]}
    (tmp_path / "raw.json").write_text(json.dumps([row | {"context": paragraphs}]))
    made = {"DATA_ROOT": str(tmp_path), "LENGTHS": "50", "QUESTIONS": "1"}
    done = script("prepare-eval-data.sh", "--synthesize", str(tmp_path / "raw.json"), **made)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "eval_50.json").read_text())[0]["num_docs"] == 50
    assert script("prepare-eval-data.sh", **made).returncode == 0


@pytest.fixture
def run(tmp_path):
    """A folder with three checkpoints, the last of them torn, of a model; none is converted."""
    make_tiny_model(tmp_path / "model", tied=True)
    write_release(tmp_path / "model", tmp_path / "start")
    for iteration in (20, 30, 100):
        shutil.copytree(tmp_path / "start" / "release", tmp_path / f"iter_{iteration:07d}")
    (tmp_path / "iter_0000100" / ".metadata").write_bytes(b"")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("100\n")
    return tmp_path


def convert(run, **env):
    settings = {"SAVE_PATH": str(run), "HF_CKPT": str(run / "model"), "AVERAGE": "", "OUTPUT": "", "FORCE": ""}
    return script("convert-to-hf.sh", **settings | env)


def planned(run, **env):
    """Name and output of every command."""
    done = convert(run, DRY_RUN="1", **env)
    assert done.returncode == 0, done.stderr
    words = [shlex.split(line) for line in done.stdout.splitlines() if "-m mem_agent" in line]
    outputs = [line[line.index("--output") + 1].removeprefix(f"{run}/") for line in words]
    return [(line[4], out) for line, out in zip(words, outputs, strict=True)]


def test_which_checkpoints_convert_where(run):
    newest = [("convert", "hf/iter_0000100")]
    assert planned(run) == planned(run, SINGLE_ITER="100") == planned(run, SINGLE_ITER="iter_0000100") == newest
    assert planned(run, SINGLE_ITER="20", OUTPUT=f"{run}/o") == [("convert", "o")]
    every = [("convert", f"hf/iter_00000{iteration}") for iteration in (20, 30)]
    assert planned(run, SINGLE_ITER="all") == every + newest
    assert planned(run, AVERAGE="30 iter_0000020") == [*every[::-1], ("average", "hf/average_30_20")]
    (run / "hf" / "iter_0000020").mkdir(parents=True)
    assert planned(run, SINGLE_ITER="all") == every[1:] + newest
    assert planned(run, SINGLE_ITER="all", FORCE="1") == every + newest
    assert planned(run, AVERAGE="20 30", OUTPUT=f"{run}/o") == [every[1], ("average", "o")]


@pytest.mark.parametrize("average,message", [("20", "at least 2"), ("20 40", "no checkpoint iter_0000040")])
def test_an_average_of_what_is_not_there_is_one_line(run, average, message):
    done = convert(run, AVERAGE=average, DRY_RUN="1")
    assert done.returncode == 1 and message in done.stderr.splitlines()[-1]


def test_one_torn_checkpoint_does_not_lose_the_others_which_can_be_averaged(run):
    done = convert(run, SINGLE_ITER="all")
    errors = [line for line in done.stderr.splitlines() if not line.startswith("== ")]
    assert done.returncode == 1 and "iter_0000100: the checkpoint is damaged" in errors[0]
    assert errors[1:] == ["error: not converted: iter_0000100; the lines above say why"]
    done = convert(run, AVERAGE="20 30")
    assert done.returncode == 0 and f"there: {run}/hf/iter_0000020" in done.stderr
    weights = [load_file(folder / "model.safetensors") for folder in (run / "model", run / "hf" / "average_20_30")]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
