"""What ``HOST=slime|vime run-train.sh`` would run, recipe by recipe, and one line for every way it cannot."""

import json
import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from mem_agent.checkpoints import hf_model
from mem_agent.config import Config, ConfigError, load_yaml
from mem_agent.data.document_store import DocumentWriter
from mem_agent.launch import launch, preflight
from mem_agent.launch import plan as planning
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.fake_host import (
    GPU_GIB,
    OUTSIDE,
    RECIPES,
    ROW,
    make_host,
    recipe,
    settings,
)
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

GOLDEN = Path(__file__).parents[1] / "golden"
GPUS = {"qwen2.5-7b": (4, 8), "qwen3-0.6b-24gb": (1, 1), "rememr1-qwen2.5-3b": (2, 8), "rememr1-qwen2.5-7b": (4, 8),
        "qwen2.5-14b": (16, 8), "memory-r": (1, 1)}
"""Machines and GPUs of each that a recipe is for, unless that is (1, 8)."""


@pytest.fixture(autouse=True)
def without_gpus(monkeypatch):
    monkeypatch.setattr(planning, "nvidia_smi", lambda *_: "")


def plan(env):
    return planning.make_plan(Config.from_env(env))


def flags(made):
    return [item for group in made.arguments.values() for item in group]


def value(made, flag):
    """The last one, which wins."""
    return flags(made)[::-1][flags(made)[::-1].index(flag) - 1]


# --- the command line -----------------------------------------------------------------------------------------------

CASES = [("slime", name, {}) for name in RECIPES] + [
    ("vime", "qwen3-4b", {}),
    ("slime", "qwen2.5-0.5b", {"FULLY_ASYNC": "1"}),
    ("vime", "qwen2.5-3b", {"DYNAMIC_FILTER": "nonzero_std", "OVER_SAMPLING_BATCH_SIZE": "64"}),
    ("vime", "qwen2.5-7b", {"EVAL_INTERVAL": "5", "EVAL_DATA": "TMP/dev.jsonl", "TRACKER": "wandb",
                            "RAY_ADDRESS": "http://head:8265"}),
]


@pytest.mark.parametrize("host,name,changes", CASES)
def test_dry_run_of_each_recipe(host, name, changes, tmp_path, capsys, monkeypatch):
    """WRITE_GOLDEN=1 writes the files anew."""
    monkeypatch.setattr(planning, "nvidia_smi", lambda *_: f"{GPU_GIB.get(name, 80) * 1024}\n")
    monkeypatch.setattr(planning, "has_sticky_router", lambda: True)
    nodes, gpus = GPUS.get(name, (1, 8))
    env = settings(tmp_path, host, RECIPES[name], **recipe(name))
    env |= {"NUM_NODES": str(nodes), "NUM_GPUS": str(gpus), "MASTER_ADDR": "10.0.0.1"} | OUTSIDE.get(name, {})
    env |= {key: value.replace("TMP", str(tmp_path)) for key, value in changes.items()}
    launch.print_plan(plan(env))
    found = capsys.readouterr().out.split("# --- commands\n")[1]
    found = found.replace(str(tmp_path), "TMP").replace(shlex.quote(sys.executable), "PYTHON")
    file = GOLDEN / f"{'-'.join([host, name, *sorted(k.lower() for k in changes)][:3])}.txt"
    if os.environ.get("WRITE_GOLDEN"):
        file.write_text(found)
    assert found == file.read_text()


def test_arguments_of_an_asynchronous_run(tmp_path):
    env = settings(tmp_path, FULLY_ASYNC="1", HOST_ARGS="--rollout-num-gpus 6")
    made = plan(env)
    assert made.command[1].endswith("train_async.py")
    assert "--colocate" not in flags(made) and "--use-tis" in flags(made)
    assert made.layout.train_gpus == 2 and made.layout.rollout_gpus == 6
    assert value(made, "--rollout-function-path") == "mem_agent.rollout.rollout_fully_async"
    assert "--custom-megatron-init-path" in flags(made)
    assert "--custom-megatron-init-path" not in plan(env | {"KL_COEF": "0"}).command


@pytest.mark.parametrize("host", ["slime", "vime"])
def test_arguments_of_supervised_training(host, tmp_path):
    made = plan(settings(tmp_path, host, LOSS="sft", DYNAMIC_FILTER="nonzero_std", KL_COEF="0.1"))
    assert made.command[1].endswith("train.py") and made.arguments["loss"][:2] == ["--loss-type", "sft_loss"]
    assert "mem_agent.rollout.rollout_of_given_replies" in flags(made) and "--debug-train-only" in flags(made)
    unasked = {"--colocate", "--rollout-num-gpus", "--use-kl-loss", "--dynamic-sampling-filter-path", "--eps-clip",
               "--custom-megatron-init-path"}
    assert not unasked & set(flags(made)) and "engine" not in made.arguments
    assert value(made, "--n-samples-per-prompt") == "1" and made.layout.train_gpus == 8


def test_the_users_arguments_come_last_and_split_as_in_a_shell(tmp_path):
    made = plan(settings(tmp_path, HOST_ARGS="--lr 5e-6 --wandb-group 'my run'"))
    assert made.command[-4:] == ["--lr", "5e-6", "--wandb-group", "my run"]


def test_the_layout_fits_what_the_users_arguments_say(tmp_path):
    division = "--context-parallel-size=2 --pipeline-model-parallel-size 2 --rollout-num-gpus-per-engine 4"
    made = plan(settings(tmp_path, HOST_ARGS=f"{division} --sglang-mem-fraction-static 0.5"))
    assert (made.layout.cp, made.layout.pp, made.layout.engine_gpus) == (2, 2, 4)
    assert made.layout.data_parallel * made.layout.tp == 2
    assert value(made, "--sglang-mem-fraction-static") == "0.5"


def test_rows_that_are_conversations_reach_the_hooks_as_they_are(tmp_path):
    """Hosts hand on a list under --input-key as it is, unless they are told to render it or to look for images."""
    made = plan(settings(tmp_path, AGENT="chat", MEM_MAX_QUESTION="300", MEM_MAX_FINAL="200"))
    assert value(made, "--input-key") == "prompt" and value(made, "--rollout-max-response-len") == "1024"
    assert {"--apply-chat-template", "--multimodal-keys", "--tool-key"}.isdisjoint(flags(made))
    assert 500 < made.config.engine_max_len < 600  # the longest turn, to the next 64


@pytest.mark.parametrize("host,batch,concurrency", [("slime", "32", "32"), ("slime", "192", "64"),  # 2 x 192 over 6
                                                    ("vime", "32", "32"), ("vime", "192", "40")])  # 5/4 x 192
def test_an_asynchronous_worker_draws_what_rollouts_consume(host, batch, concurrency, tmp_path):
    env = settings(tmp_path, host, FULLY_ASYNC="1", ROLLOUT_BATCH_SIZE=batch,
                   HOST_ARGS="--rollout-num-gpus 6 --rollout-num-gpus-per-engine 1")
    assert plan(env).arguments["asynchronous"][1] == concurrency


# --- what a plan is made of -----------------------------------------------------------------------------------------


def test_paths_reach_workers_absolute(tmp_path, monkeypatch):
    env = settings(tmp_path)
    monkeypatch.chdir(tmp_path)
    relative = {"TRAIN_DATA": "train.jsonl", "SAVE_PATH": "run", "HF_CKPT": "model", "EVAL_DATA": "a.jsonl b.jsonl"}
    made = plan(env | relative)
    assert made.config.train_data == str(tmp_path / "train.jsonl") and made.config.save_path == str(tmp_path / "run")
    assert made.config.eval_data == f"{tmp_path}/a.jsonl {tmp_path}/b.jsonl"
    assert made.config.torch_dist == str(tmp_path / "model_torch_dist")


def test_a_launch_leaves_its_settings_for_workers_and_for_the_models_it_trains(tmp_path):
    made = plan(settings(tmp_path, MEM_CHUNK_TOKENS="777"))
    launch.write_records(made)
    for_workers, of_run = (load_yaml(folder / "mem_agent.yaml") for folder in (made.folder, made.folder.parent))
    assert for_workers == of_run == made.config and of_run.mem_chunk_tokens == 777


def test_a_dry_run_of_a_hub_model_loads_no_weights(tmp_path, monkeypatch):
    env, asked = settings(tmp_path), []

    def download(name, ignore_patterns):
        asked.append((name, ignore_patterns))
        return str(tmp_path / "model")

    monkeypatch.setattr(hf_model, "snapshot_download", download)
    config = Config.from_env(env | {"HF_CKPT": "Qwen/Qwen3-4B"})
    made = planning.make_plan(config, weights=False)
    planning.make_plan(config)
    assert [name for name, _ in asked] == ["Qwen/Qwen3-4B"] * 2
    assert "*.safetensors" in asked[0][1] and asked[1][1] is None
    assert made.config.torch_dist == str(tmp_path / "run" / "Qwen3-4B_torch_dist")  # never in the hub's cache


WRONG = [
    ({"HOST_ROOT": "/nowhere"}, "HOST_ROOT"),
    ({"MEGATRON_ROOT": "/nowhere"}, "MEGATRON_ROOT"),
    ({"HF_CKPT": "/nowhere"}, "HF_CKPT"),
    ({"NUM_GPUS": "0"}, "NUM_GPUS"),
    ({"NUM_GPUS": "1"}, "MAX_TOKENS_PER_GPU"),
    ({"ENGINE_MAX_LEN": "4500"}, "ENGINE_MAX_LEN"),
    ({"FULLY_ASYNC": "1", "DYNAMIC_FILTER": "nonzero_std"}, "DYNAMIC_FILTER"),
    ({"FULLY_ASYNC": "1", "EVAL_INTERVAL": "5"}, "EVAL_INTERVAL"),
    ({"FULLY_ASYNC": "1", "HOST_ARGS": "--custom-megatron-init-path my.init"}, "HOST_ARGS"),
    ({"LOSS": "sft", "EVAL_INTERVAL": "5"}, "LOSS=sft"),
    ({"LORA_RANK": "16"}, "LORA_RANK"),
]


@pytest.mark.parametrize("changes,setting", WRONG)
def test_what_cannot_be_planned_names_its_setting(changes, setting, tmp_path):
    """Some settings leave a plan to be shown, with the problem in it."""
    try:
        (problem,) = plan(settings(tmp_path, **changes)).problems
    except ConfigError as error:
        problem = str(error)
    assert setting in problem and "\n" not in problem


def test_a_model_without_a_tokenizer_is_refused(tmp_path):
    env = settings(tmp_path)
    for file in (tmp_path / "model").glob("*token*"):
        file.unlink()
    with pytest.raises(ConfigError, match="tokenizer"):
        plan(env)


@pytest.mark.parametrize("without", ["custom-generate-function-path", "num-steps-per-rollout", "utils/dp_schedule.py"])
def test_a_host_version_without_what_is_needed_is_refused_before_a_script_of_it_is_run(without, tmp_path):
    env = settings(tmp_path)
    old = make_host(tmp_path / "old", without=without)
    (old / "scripts" / "models" / "a.sh").write_text(f"touch '{tmp_path}/ran'\n")
    with pytest.raises(ConfigError, match=without):
        plan(env | {"HOST_ROOT": str(old)})
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("without", ["custom-megatron-init-path", "load_other_checkpoint", "_switch_model"])
def test_a_host_whose_continued_run_would_begin_with_the_reference_is_refused(without, tmp_path):
    env = settings(tmp_path)
    make_host(tmp_path / "other", without=without)
    env |= {"HOST_ROOT": str(tmp_path / "other")}
    with pytest.raises(ConfigError, match=without):
        plan(env | {"FULLY_ASYNC": "1"})
    plan(env | {"FULLY_ASYNC": "1", "KL_COEF": "0"})
    plan(env)


def test_a_dry_run_on_a_laptop_shows_the_plan_and_then_every_problem(tmp_path):
    env = settings(tmp_path, HOST_ARGS="--partial-rollout", TRAIN_DATA="/nowhere.jsonl", MEGATRON_ROOT="/nowhere")
    done = subprocess.run([sys.executable, "-m", "mem_agent", "launch", "--dry-run"], env=os.environ | env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=HANGS_AFTER_S)
    plan, *errors = done.stdout.split("error: ")
    assert done.returncode == 1 and "--num-rollout 100" in plan and "NUM_GPUS: 8" in plan and "EPS_CLIP" not in plan
    for said in ("--partial-rollout", "MEGATRON_ROOT=", "/nowhere.jsonl"):
        assert sum(said in line for line in errors) == 1, (said, errors)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_model_with_python_of_its_own_is_refused_before_a_host_runs_it(name, tmp_path):
    env = settings(tmp_path)
    file = Path(env["HF_CKPT"]) / name
    content = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(content | {"auto_map": {"AutoTokenizer": "own.Own"}}))
    with pytest.raises(ConfigError, match="TRUST_REMOTE_CODE"):
        plan(env)


# --- the reference model --------------------------------------------------------------------------------------------


def test_a_conversion_that_fails_ends_the_launch(tmp_path):
    made = plan(settings(tmp_path))  # of a model without weights
    with pytest.raises(MemAgentError, match=r"HF_CKPT.*conversion\.log"):
        launch.convert_reference(made)


# --- preflight ------------------------------------------------------------------------------------------------------


@pytest.fixture
def problems(monkeypatch):
    """Those of a launch on a machine with disk space, Ray and free ports, so that only what a test breaks is found."""
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 10**15}))
    monkeypatch.setattr(preflight, "check_imports", lambda plan, **_: None)
    monkeypatch.setattr(preflight, "is_free", lambda port: True)
    return lambda env: preflight.find_problems(plan(env))


def test_documents_by_id_without_their_store_are_told(tmp_path, problems):
    env = settings(tmp_path)
    row = '{"prompt": "q", "label": "a", "metadata": {"context_id": "%s", "ground_truth": ["a"]}}\n'
    with DocumentWriter(tmp_path / "train.jsonl.docs") as documents:
        identifier = documents.add("a text")
        documents.commit()
    (tmp_path / "train.jsonl").write_text(row % identifier * 200)
    assert problems(env) == []
    (tmp_path / "train.jsonl.docs").rename(tmp_path / "elsewhere")
    (found,) = problems(env)
    assert "train.jsonl" in found and identifier in found


def test_a_hosts_python_imports_a_pack_of_any_name_that_is_not_installed(tmp_path, monkeypatch):
    """As ``python PACK launch`` runs: no path of the processes that it starts leads to the pack."""
    monkeypatch.setenv("PYTHONPATH", sysconfig.get_path("purelib"))
    made = plan(settings(tmp_path))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # no site: nothing is installed by a .pth file
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    preflight.check_imports(made, converts=True)


def test_a_good_launch_has_no_problems(tmp_path, problems):
    assert problems(settings(tmp_path)) == []


@pytest.mark.parametrize(
    "changes,setting",
    [
        ({"TRAIN_DATA": "/nowhere.jsonl"}, "TRAIN_DATA"),
        ({"TRAIN_DATA": ""}, "TRAIN_DATA"),
        ({"ROLLOUT_BATCH_SIZE": "256"}, "ROLLOUT_BATCH_SIZE"),
        ({"TRAIN_DATA": "TMP/train.jsonl@[150:]"}, "ROLLOUT_BATCH_SIZE"),
        ({"EVAL_DATA": "TMP/train.jsonl"}, "EVAL_DATA"),
        ({"EVAL_INTERVAL": "5"}, "EVAL_DATA"),
        ({"EVAL_INTERVAL": "5", "EVAL_DATA": "/a/x.jsonl /b/x.jsonl"}, "EVAL_DATA"),
        ({"EVAL_INTERVAL": "5", "EVAL_DATA": "/nowhere.jsonl"}, "EVAL_DATA"),
        ({"NUM_NODES": "2"}, "MASTER_ADDR"),
        ({"RAY_ADDRESS": "10.0.0.1:6379"}, "RAY_ADDRESS"),
        ({"ROLLOUT_BATCH_SIZE": "2", "N_SAMPLES_PER_PROMPT": "2"}, "GLOBAL_BATCH_SIZE"),
        ({"SAVE_PATH": "/etc/passwd/run"}, "SAVE_PATH"),
        ({"LR_WARMUP_STEPS": "20", "NUM_ROLLOUT": "20"}, "LR_WARMUP_STEPS"),
    ],
)
def test_each_problem_is_one_line(changes, setting, tmp_path, problems):
    changes = {name: value.replace("TMP", str(tmp_path)) for name, value in changes.items()}
    (found,) = problems(settings(tmp_path, **{"ROLLOUT_BATCH_SIZE": "64"} | changes))
    assert setting in found and "\n" not in found


def test_a_port_that_ray_needs_and_another_has_is_told(tmp_path, problems, monkeypatch):
    monkeypatch.setattr(preflight, "is_free", lambda port: port != planning.RAY_PORTS[1])
    assert ["RAY_ADDRESS" in line for line in problems(settings(tmp_path))] == [True]


def test_a_conversation_is_a_row(tmp_path, problems):
    env = settings(tmp_path, AGENT="chat")
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    row = {"prompt": messages, "label": "a", "metadata": {}}
    (tmp_path / "train.jsonl").write_text(json.dumps(row) + "\n" + ROW * 199)
    assert problems(env) == []


def test_rows_counted_from_the_end_are_refused_where_the_host_cannot(tmp_path, problems):
    env = settings(tmp_path, "vime")
    assert len(problems(env | {"TRAIN_DATA": f"{tmp_path}/train.jsonl@[-100:]"})) == 1
    assert problems(env | {"TRAIN_DATA": f"{tmp_path}/train.jsonl@[100:]"}) == []


def test_a_full_disk_is_told(tmp_path, problems, monkeypatch):
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 10**9}))
    checkpoints, reference = problems(settings(tmp_path))
    assert "SAVE_PATH=" in checkpoints and "563 GB" in checkpoints  # 10 checkpoints of 140 x 4.02e9 bytes
    assert "TORCH_DIST=" in reference and "8 GB" in reference


def test_a_folder_with_something_else_is_not_taken_for_the_reference(tmp_path, problems):
    folder = tmp_path / "reference"
    (folder / ".release.writing").mkdir(parents=True)  # of a conversion that was killed
    assert problems(settings(tmp_path, TORCH_DIST=str(folder))) == []
    (folder / "notes.txt").touch()
    assert ["TORCH_DIST" in line for line in problems(settings(tmp_path, TORCH_DIST=str(folder)))] == [True]


@pytest.mark.parametrize("wanted,fits", [
    ({}, True), ({"NUM_NODES": "2"}, False), ({"NUM_NODES": "2", "NUM_GPUS": "4"}, True), ({"NUM_GPUS": "16"}, False),
])
def test_a_joined_cluster_has_the_machines_that_are_asked_for(wanted, fits, tmp_path, problems, monkeypatch):
    monkeypatch.setattr(preflight, "machines", lambda address: [8, 4, 0])
    found = problems(settings(tmp_path, RAY_ADDRESS="http://head:8265", **wanted))
    assert ["8, 4, 0" in line for line in found] == ([] if fits else [True])
