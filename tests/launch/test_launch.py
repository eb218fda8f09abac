"""What ``HOST=slime|vime run-train.sh`` would run, recipe by recipe, and one line for every way it cannot."""

import os
import shlex
import sys
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.checkpoints import hf_model
from mem_agent.config import Config, ConfigError, load_yaml
from mem_agent.data.document_store import DocumentStore, store_folder
from mem_agent.data.training_file import DataSource
from mem_agent.launch import launch, preflight
from mem_agent.launch import plan as planning
from mem_agent.launch.arguments import prompt_file
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.fake_host import GPU_GIB, OUTSIDE, RECIPES, make_host, make_model, recipe, settings

GOLDEN = Path(__file__).parents[1] / "golden"
GPUS = {"qwen2.5-7b": (4, 8), "qwen3-0.6b-24gb": (1, 1), "rememr1-qwen2.5-3b": (2, 8), "rememr1-qwen2.5-7b": (4, 8),
        "qwen2.5-14b": (16, 8), "memory-r": (1, 1)}
"""Machines and GPUs of each that a recipe is for, unless that is (1, 8)."""


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """No GPUs, so that only what a test breaks is found."""
    monkeypatch.setattr(planning, "nvidia_smi", lambda *_: "")


def plan(env):
    return planning.make_plan(Config.from_env(env))


def problems(env):
    try:
        return preflight.find_problems(plan(env).config)
    except ConfigError as error:  # some settings leave no plan to be shown
        return [str(error)]


def flags(made):
    return [item for group in made.arguments.values() for item in group]


# --- the command line -----------------------------------------------------------------------------------------------

CASES = [("slime", name, {}) for name in RECIPES] + [
    ("vime", "qwen3-4b", {}),
    ("slime", "qwen2.5-0.5b", {"FULLY_ASYNC": "1"}),
    ("vime", "qwen2.5-3b", {"DYNAMIC_FILTER": "nonzero_std", "OVER_SAMPLING_BATCH_SIZE": "64"}),
    ("vime", "qwen2.5-7b", {"EVAL_INTERVAL": "5", "EVAL_DATA": "TMP/dev.jsonl", "TRACKER": "wandb",
                            "RAY_ADDRESS": "http://head:8265"}),
    ("vime", "qwen3-4b", {"FULLY_ASYNC": "1", "ROLLOUT_BATCH_SIZE": "192", "KL_COEF": "0",
                          "HOST_ARGS": "--rollout-num-gpus 6 --rollout-num-gpus-per-engine 1"}),
    ("slime", "qwen3-4b", {"LOSS": "sft"}),
]


@pytest.mark.parametrize("host,name,changes", CASES)
def test_dry_run_of_each_recipe(host, name, changes, tmp_path, capsys, monkeypatch):
    """WRITE_GOLDEN=1 writes the files anew."""
    monkeypatch.setattr(planning, "nvidia_smi", lambda *_: f"{GPU_GIB.get(name, 80) * 1024}\n")
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


# --- what a plan is made of -----------------------------------------------------------------------------------------


def test_paths_reach_workers_absolute_and_the_users_arguments_last_split_as_in_a_shell(tmp_path, monkeypatch):
    env = settings(tmp_path, HOST_ARGS="--context-parallel-size 2 --wandb-group 'my run'")
    monkeypatch.chdir(tmp_path)
    relative = {"TRAIN_DATA": "train.jsonl", "SAVE_PATH": "a run", "HF_CKPT": "model", "EVAL_DATA": "a.jsonl b.jsonl"}
    made = plan(env | relative)
    assert made.config.train_data == str(tmp_path / "train.jsonl") and f"{tmp_path}/a run" in made.command
    assert made.config.eval_data == f"{tmp_path}/a.jsonl {tmp_path}/b.jsonl"
    assert made.config.torch_dist == str(tmp_path / "model_torch_dist")
    assert made.command[-2:] == ["--wandb-group", "my run"] and made.layout.cp == 2


def test_a_launch_leaves_its_settings_and_ends_where_the_reference_is_not_converted(tmp_path, monkeypatch):
    made = plan(settings(tmp_path, MEM_CHUNK_TOKENS="777"))
    monkeypatch.setattr(launch.subprocess, "call", lambda command, env: command[-1] == made.config.torch_dist)
    with pytest.raises(MemAgentError, match="HF_CKPT"):
        launch.launch(made)
    for_workers, of_run = (load_yaml(folder / "mem_agent.yaml") for folder in (made.folder, made.folder.parent))
    assert for_workers == of_run == made.config and of_run.mem_chunk_tokens == 777
    assert (Path(made.variables["PYTHONPATH"].split(":")[0]) / "mem_agent" / "rollout.py").is_file()


def test_a_dry_run_of_a_hub_model_loads_no_weights(tmp_path, monkeypatch):
    env, download = settings(tmp_path), Mock(return_value=str(tmp_path / "model"))
    monkeypatch.setattr(hf_model, "snapshot_download", download)
    made = planning.make_plan(Config.from_env(env | {"HF_CKPT": "Qwen/Qwen3-4B"}), weights=False)
    [asked] = download.mock_calls
    assert asked.args == ("Qwen/Qwen3-4B",) and "*.safetensors" in asked.kwargs["ignore_patterns"]
    assert made.config.torch_dist == str(tmp_path / "run" / "Qwen3-4B_torch_dist")  # never in the hub's cache


# --- preflight ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes,setting", [
    ({"HOST_ROOT": "TMP/old"}, "custom-generate-function-path"),
    ({"HF_CKPT": "TMP/foreign"}, "TRUST_REMOTE_CODE"),
    ({"ENGINE_MAX_LEN": "4500"}, "ENGINE_MAX_LEN"),
    ({"FULLY_ASYNC": "1", "DYNAMIC_FILTER": "nonzero_std"}, "DYNAMIC_FILTER"),
    ({"TRAIN_DATA": "TMP/train.jsonl@[250:]"}, "ROLLOUT_BATCH_SIZE"),
    ({"NUM_NODES": "2"}, "MASTER_ADDR"), ({"HOST_ARGS": "--n-samples-per-prompt 1"}, "--n-samples-per-prompt"),
    ({"SAVE_PATH": "TMP/train.jsonl/run"}, "SAVE_PATH"), ({"HF_CKPT": "TMP/rotary"}, "partial_rotary_factor"),
])
def test_each_problem_is_one_line(changes, setting, tmp_path):
    changes = {name: value.replace("TMP", str(tmp_path)) for name, value in changes.items()}
    make_host(tmp_path / "old", without="custom-generate-function-path")
    make_model(tmp_path / "foreign", "qwen3-4b", auto_map={"AutoModel": "own.Own"})
    make_model(tmp_path / "rotary", "qwen3-4b", partial_rotary_factor=0.5)
    (found,) = problems(settings(tmp_path, **{"ROLLOUT_BATCH_SIZE": "64"} | changes))
    assert setting in found and "\n" not in found


def test_a_prepared_curriculum_is_read_in_its_order_unless_the_user_says_otherwise(tmp_path):
    env = settings(tmp_path)
    row = '{"prompt": "q", "label": "a", "metadata": {"context": "c", "curriculum": true}}\n'
    assert "--rollout-shuffle" in flags(plan(env))
    Path(env["TRAIN_DATA"]).write_text(row * 200)
    assert "--rollout-shuffle" not in flags(plan(env))
    assert "--rollout-shuffle" in flags(plan(env | {"ROLLOUT_SHUFFLE": "1"}))


def test_documents_without_their_store_and_adapters_that_a_host_would_leave_out_are_told(tmp_path):
    env = settings(tmp_path)
    row = '{"prompt": "q", "label": "a", "metadata": {"context_id": "%s", "ground_truth": ["a"]}}\n'
    identifier = DocumentStore(tmp_path / "train.jsonl.docs").add("a text")
    (tmp_path / "train.jsonl").write_text(row % identifier * 200)
    assert problems(env) == []
    (tmp_path / "train.jsonl.docs").rename(tmp_path / "elsewhere")
    (Path(env["SAVE_PATH"]) / "iter_0000004").mkdir(parents=True)
    (Path(env["SAVE_PATH"]) / "iter_0000004" / ".metadata").write_bytes(b"decoder.layers.0.mlp.linear_fc1.lora.a")
    adapters, documents = problems(env)
    assert "train.jsonl" in documents and identifier in documents and "LoRA" in adapters


def test_a_dry_run_shows_the_plan_and_then_every_problem(tmp_path, capsys, monkeypatch):
    env = settings(tmp_path, HOST_ARGS="--partial-rollout", TRAIN_DATA="/nowhere.jsonl", MEGATRON_ROOT="/nowhere")
    for name, text in env.items():
        monkeypatch.setenv(name, text)
    assert launch.main(["--dry-run", "--convert", "--push-to-hub", "a/b"]) == 1
    printed = capsys.readouterr()
    assert "--num-rollout 100" in printed.out and "NUM_GPUS: 8" in printed.out and "EPS_CLIP" not in printed.out
    assert printed.out.rstrip().endswith("--push-to-hub a/b")
    assert len(printed.err.splitlines()) == 3
    monkeypatch.setenv("HF_CKPT", "/no/model")
    assert launch.main(["--dry-run"]) == 1
    told = capsys.readouterr().err
    assert "/no/model" in told and "/nowhere.jsonl" in told and "--partial-rollout" in told


# --- shards as the one file that hosts read -------------------------------------------------------------------------


def test_shards_become_one_file_whose_documents_stay_beside_them(tmp_path):
    data, copy = tmp_path / "data", tmp_path / "run" / "launch" / "train.parquet"
    config = Config(train_data=str(data), save_path=str(tmp_path / "run"))
    data.mkdir()
    for number, names in enumerate(["abc", "de"]):
        rows = [{"prompt": name, "label": "", "metadata": {"task": "t"}} for name in names]
        pq.write_table(pa.Table.from_pylist(rows), data / f"train_{number}.parquet", row_group_size=2)
        identifier = DocumentStore(store_folder(data)).add("a text")
        launch.join_shards(config)
    source = DataSource(prompt_file(config), 1, shuffle=False)
    assert "".join(source.row(number).prompt for number in range(len(source))) == "abcde" and source.path == copy
    assert DocumentStore(store_folder(copy)).get(identifier) == "a text"
    pq.write_table(pa.table({"prompt": ["f"], "metadata": [{"gold": 1}]}), data / "train_2.parquet")
    with pytest.raises(ConfigError, match=r"train_2\.parquet"):
        launch.join_shards(config)
