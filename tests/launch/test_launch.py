"""What ``HOST=slime|vime run-train.sh`` would run, recipe by recipe, and one line for every way it cannot."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.checkpoints import hf_model
from mem_agent.config import Config, ConfigError, load_yaml
from mem_agent.data.document_store import DocumentWriter
from mem_agent.launch import launch, machine, preflight
from mem_agent.launch import plan as planning
from mem_agent.tests.helpers.fake_host import OUTSIDE, RECIPES, ROW, make_host, make_model, recipe, settings
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parents[1] / "golden"
GPUS = {"qwen3-4b": (1, 8, 80), "qwen2.5-7b": (4, 8, 80), "qwen2.5-3b": (1, 8, 80), "qwen2.5-0.5b": (1, 8, 80),
        "qwen3-0.6b-24gb": (1, 1, 24), "rememr1-qwen2.5-3b": (2, 8, 80), "rememr1-qwen2.5-7b": (4, 8, 80),
        "qwen2.5-14b": (16, 8, 80), "memory-r-qwen2.5-0.5b": (1, 1, 80),
        "memsifter-qwen3-4b": (1, 8, 141)}


def plan(env):
    return planning.make_plan(Config.from_env(env))


def commands(env, tmp_path, capsys):
    """The commands part of a dry run, with this machine's paths replaced."""
    launch.print_plan(plan(env))
    text = capsys.readouterr().out.split("# --- commands\n")[1]
    return text.replace(str(tmp_path), "TMP").replace(shlex.quote(sys.executable), "PYTHON")


CASES = [("slime", name, {}) for name in RECIPES] + [
    ("vime", "memsifter-qwen3-4b", {"ANSWER_CKPT": "TMP/answer", "ANSWER_URL": ""}),
    ("vime", "qwen3-4b", {}),
    ("slime", "qwen2.5-0.5b", {"FULLY_ASYNC": "1"}),
    ("vime", "qwen2.5-3b", {"DYNAMIC_FILTER": "nonzero_std", "OVER_SAMPLING_BATCH_SIZE": "64"}),
    ("vime", "qwen2.5-7b", {"EVAL_INTERVAL": "5", "EVAL_DATA": "TMP/dev.jsonl", "TRACKER": "wandb",
                            "RAY_ADDRESS": "http://head:8265", "TORCH_DIST_WRITER": "pack"}),
]


@pytest.mark.parametrize("host,name,changes", CASES)
def test_dry_run_of_each_recipe(host, name, changes, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(machine, "machines", lambda address: [8] * 4)
    monkeypatch.setattr(planning, "has_sticky_router", lambda: True)
    nodes, gpus, memory = GPUS[name]
    env = settings(tmp_path, host, RECIPES[name], **recipe(name))
    env |= {"NUM_NODES": str(nodes), "NUM_GPUS": str(gpus), "GPU_MEMORY_GB": str(memory), "MASTER_ADDR": "10.0.0.1"}
    env |= OUTSIDE.get(name, {})
    env |= {key: value.replace("TMP", str(tmp_path)) for key, value in changes.items()}
    make_model(tmp_path / "answer", "qwen2.5-7b")
    found = commands(env, tmp_path, capsys)
    file = GOLDEN / f"{'-'.join([host, name, *sorted(k.lower() for k in changes)][:3])}.txt"
    if os.environ.get("WRITE_GOLDEN"):
        file.write_text(found)
    assert found == file.read_text()


def test_arguments_of_an_asynchronous_run(tmp_path):
    made = plan(settings(tmp_path, FULLY_ASYNC="1", ROLLOUT_GPUS="6"))
    flags = [item for group in made.arguments.values() for item in group]
    assert made.command[1].endswith("train_async.py") and "--colocate" not in flags and "--use-tis" in flags
    assert made.layout.train_gpus == 2 and made.layout.rollout_gpus == 6
    assert "mem_agent.rollout.rollout_fully_async" in flags
    assert "mem_agent.hooks.trainer_init.keep_policy" in flags
    assert "--custom-megatron-init-path" not in plan(settings(tmp_path, FULLY_ASYNC="1", KL_COEF="0")).command


@pytest.mark.parametrize("host", ["slime", "vime"])
def test_arguments_of_supervised_training(host, tmp_path):
    made = plan(settings(tmp_path, host, LOSS="sft", DYNAMIC_FILTER="nonzero_std", KL_COEF="0.1"))
    flags = [item for group in made.arguments.values() for item in group]
    assert made.command[1].endswith("train.py") and made.arguments["loss"][:2] == ["--loss-type", "sft_loss"]
    assert "mem_agent.rollout.rollout_of_given_replies" in flags and "--debug-train-only" in flags
    unasked = ("--colocate", "--rollout-num-gpus", "--use-kl-loss", "--dynamic-sampling-filter-path", "--eps-clip",
               "--custom-megatron-init-path")
    assert not set(unasked) & set(flags) and not [flag for flag in flags if flag.startswith(("--sglang", "--vllm"))]
    assert flags[flags.index("--n-samples-per-prompt") + 1] == "1" and made.layout.train_gpus == 8


def test_the_users_arguments_come_last_and_split_as_in_a_shell(tmp_path):
    made = plan(settings(tmp_path, HOST_ARGS="--lr 5e-6 --wandb-group 'my run'"))
    assert made.command[-4:] == ["--lr", "5e-6", "--wandb-group", "my run"]


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


@pytest.mark.parametrize("host,batch,concurrency", [("slime", "32", "32"), ("slime", "192", "64"),  # 2 x 192 over 6
                                                    ("vime", "32", "32"), ("vime", "192", "40")])  # 5/4 x 192
def test_an_asynchronous_worker_draws_what_rollouts_consume(host, batch, concurrency, tmp_path):
    env = settings(tmp_path, host, FULLY_ASYNC="1", ROLLOUT_GPUS="6", ENGINE_GPUS="1", ROLLOUT_BATCH_SIZE=batch)
    assert plan(env).arguments["asynchronous"][1] == concurrency


def test_a_dry_run_of_a_hub_model_loads_no_weights(tmp_path, monkeypatch):
    env = settings(tmp_path)
    asked = []

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
    ({"HOST_ROOT": "/nowhere"}, "HOST_ROOT='/nowhere'"),
    ({"MEGATRON_ROOT": "/nowhere"}, "MEGATRON_ROOT='/nowhere'"),
    ({"MODEL_FAMILY": "qwen2.5-7b"}, "does not describe HF_CKPT: --num-layers 28 there, num_hidden_layers 36"),
    ({"HF_CKPT": "/nowhere"}, "HF_CKPT='/nowhere'"),
    ({"NUM_GPUS": "0"}, "set NUM_GPUS"),
    ({"NUM_GPUS": "1"}, "do not fit 1 training GPUs of 80 GiB; use 2 or more"),
    ({"ENGINE_MAX_LEN": "4500"}, "the longest turn of AGENT=memagent has"),
    ({"ENGINE_GPUS": "3"}, "ENGINE_GPUS=3 does not divide"),
    ({"FULLY_ASYNC": "1", "DYNAMIC_FILTER": "nonzero_std"}, "set DYNAMIC_FILTER=none"),
    ({"FULLY_ASYNC": "1", "EVAL_INTERVAL": "5"}, "set EVAL_INTERVAL=0"),
    ({"HOST_ARGS": "--lr 1 --partial-rollout"}, "--partial-rollout cannot be used"),
    ({"FULLY_ASYNC": "1", "HOST_ARGS": "--custom-megatron-init-path my.init"}, "samples from the reference first"),
    ({"HOST_ARGS": "--x 'y"}, "No closing quotation"),
    ({"RAY_ADDRESS": "10.0.0.1:6379"}, "http://HEAD:8265"),
    ({"LOSS": "sft", "EVAL_INTERVAL": "5"}, "EVAL_INTERVAL=5: LOSS=sft"),
    ({"LORA_RANK": "16"}, "LORA_RANK=16"),
]


@pytest.mark.parametrize("changes,message", WRONG)
def test_what_cannot_be_planned_is_one_line(changes, message, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # no nvidia-smi
    with pytest.raises(ConfigError) as error:
        plan(settings(tmp_path, **changes))
    assert message in str(error.value)


def test_a_model_without_a_tokenizer_is_one_line(tmp_path):
    env = settings(tmp_path)
    for file in (tmp_path / "model").glob("*token*"):
        file.unlink()
    with pytest.raises(ConfigError, match=r"the tokenizer of .*/model cannot be used"):
        plan(env)


@pytest.mark.parametrize("without", ["custom-generate-function-path", "num-steps-per-rollout", "utils/dp_schedule.py",
                                     "custom-megatron-before-train-step-hook-path"])
def test_a_host_version_without_what_is_needed_is_refused_before_a_script_of_it_is_run(without, tmp_path):
    env = settings(tmp_path)
    old = make_host(tmp_path / "old", without=without)
    (old / "scripts" / "models" / "a.sh").write_text(f"touch '{tmp_path}/ran'\n")
    config = Config.from_env(env | {"HOST_ROOT": str(old), "LR_WARMUP_ROLLOUTS": "2"})
    for problems in (None, []):  # as a dry run
        with pytest.raises(ConfigError, match=f"this version of slime lacks .*{without}.*; use "):
            planning.make_plan(config, problems=problems)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("without", ["custom-megatron-init-path", "load_other_checkpoint", "_switch_model"])
def test_a_host_whose_continued_run_would_begin_with_the_reference_is_refused(without, tmp_path):
    env = settings(tmp_path)
    make_host(tmp_path / "other", without=without)
    env |= {"HOST_ROOT": str(tmp_path / "other")}
    with pytest.raises(ConfigError, match=rf"lacks .*{without} \(KL_COEF above 0 without colocation\); use "):
        plan(env | {"FULLY_ASYNC": "1"})
    plan(env | {"FULLY_ASYNC": "1", "KL_COEF": "0"})
    plan(env)


def test_a_folder_with_something_else_is_not_taken_for_the_reference(tmp_path):
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "notes.txt").touch()
    with pytest.raises(ConfigError, match="holds files, but no checkpoint"):
        plan(settings(tmp_path, TORCH_DIST=str(tmp_path / "reference")))


def test_a_joined_cluster_with_too_few_gpus_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "machines", lambda address: [8, 4])
    with pytest.raises(ConfigError, match=r"NUM_NODES=2 machines with 8 GPUs are needed, .* have 8, 4; lower"):
        plan(settings(tmp_path, RAY_ADDRESS="http://head:8265", NUM_NODES="2"))


def test_a_dry_run_on_a_laptop_shows_the_plan_and_then_every_problem(tmp_path):
    env = settings(tmp_path, HOST_ARGS="--partial-rollout", TRAIN_DATA="/nowhere.jsonl", MEGATRON_ROOT="/nowhere")
    done = subprocess.run([sys.executable, "-m", "mem_agent", "launch", "--dry-run"], env=os.environ | env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=HANGS_AFTER_S)
    plan, *errors = done.stdout.split("error: ")
    assert done.returncode == 1 and "--num-rollout 100" in plan and "NUM_GPUS: 8" in plan and "EPS_CLIP" not in plan
    for said in ("--partial-rollout", "no Megatron-LM", "/nowhere.jsonl"):
        assert sum(said in line for line in errors) == 1, (said, errors)


# --- preflight ----------------------------------------------------------------------------------------------------


@pytest.fixture
def plenty(monkeypatch):
    """A machine with disk space and Ray, so that only what a test breaks is found."""
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 10**15}))
    monkeypatch.setattr(preflight, "_check_ray", lambda: None)


def problems(env):
    return preflight.find_problems(plan(env))


FREE = {"RAY_PORT": "6390", "RAY_DASHBOARD_PORT": "8290"}


def test_a_good_launch_has_no_problems(tmp_path, plenty):
    assert problems(settings(tmp_path, **FREE)) == []


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"TRAIN_DATA": "/nowhere.jsonl"}, "TRAIN_DATA='/nowhere.jsonl': no such file"),
        ({"TRAIN_DATA": ""}, "TRAIN_DATA is not set"),
        ({"ROLLOUT_BATCH_SIZE": "256"}, "200 rows, a rollout takes ROLLOUT_BATCH_SIZE=256"),
        ({"TRAIN_DATA": "TMP/train.jsonl@[150:]"}, "50 rows, a rollout takes ROLLOUT_BATCH_SIZE=64"),
        ({"EVAL_DATA": "TMP/train.jsonl"}, "is never used with EVAL_INTERVAL=0; set EVAL_INTERVAL"),
        ({"EVAL_INTERVAL": "5"}, "EVAL_INTERVAL=5 needs EVAL_DATA"),
        ({"EVAL_INTERVAL": "5", "EVAL_DATA": "/a/x.jsonl /b/x.jsonl"}, "two files have the same name"),
        ({"EVAL_INTERVAL": "5", "EVAL_DATA": "/nowhere.jsonl"}, "/nowhere.jsonl: no such file"),
        ({"RAY_PORT": "12000"}, "RAY_PORT=12000: Ray keeps 10002 to 19999"),
        ({"NUM_NODES": "2"}, "NUM_NODES=2: set MASTER_ADDR"),
        ({"ROLLOUT_BATCH_SIZE": "2", "N_SAMPLES_PER_PROMPT": "2"}, "fewer than the 8 data-parallel ranks"),
        ({"SAVE_PATH": "/etc/passwd/run"}, "/etc/passwd is no writable folder"),
        ({"LR_WARMUP_STEPS": "20", "NUM_ROLLOUT": "20"}, "LR_WARMUP_STEPS=20: the run has 20 optimizer steps"),
    ],
)
def test_each_problem_is_one_line(changes, message, tmp_path, plenty):
    changes = {name: value.replace("TMP", str(tmp_path)) for name, value in changes.items()}
    (found,) = problems(settings(tmp_path, **{"ROLLOUT_BATCH_SIZE": "64"} | FREE | changes))
    assert message in found


def test_an_occupied_port_is_told(tmp_path, plenty):
    with machine.socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = other.getsockname()[1]
        (found,) = problems(settings(tmp_path, **FREE | {"RAY_DASHBOARD_PORT": str(port)}))
    assert f"RAY_DASHBOARD_PORT={port}:" in found


@pytest.mark.parametrize("host", ["slime", "vime"])
def test_rows_that_are_conversations_reach_the_hooks_as_they_are(host, tmp_path, plenty):
    """Hosts hand on a list under --input-key as it is, unless they are told to render it or to look for images."""
    made = plan(settings(tmp_path, host, AGENT="chat", MEM_MAX_QUESTION="300", MEM_MAX_FINAL="200"))
    flags = [item for group in made.arguments.values() for item in group]
    assert flags[flags.index("--input-key") + 1] == "prompt"
    assert {"--apply-chat-template", "--multimodal-keys", "--tool-key", "--rollout-max-prompt-len"}.isdisjoint(flags)
    assert flags[flags.index("--rollout-max-response-len") + 1] == "1024"
    assert 500 < made.config.engine_max_len < 600  # the longest turn, to the next 64
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    row = {"prompt": messages, "label": "a", "metadata": {}}
    (tmp_path / "train.jsonl").write_text(json.dumps(row) + "\n" + ROW * 199)
    assert problems(settings(tmp_path, host, AGENT="chat", **FREE)) == []


def test_rows_counted_from_the_end_are_refused_where_the_host_cannot(tmp_path, plenty):
    env = settings(tmp_path, "vime", **FREE)
    (found,) = problems(env | {"TRAIN_DATA": f"{tmp_path}/train.jsonl@[-100:]"})
    assert "vime takes no rows counted from the end" in found
    assert problems(env | {"TRAIN_DATA": f"{tmp_path}/train.jsonl@[100:]"}) == []


def test_a_full_disk_is_told(tmp_path, plenty, monkeypatch):
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 10**9}))
    checkpoints, reference = problems(settings(tmp_path, **FREE))
    assert "1 GB free, 10 checkpoints (the host deletes none) will take 563 GB" in checkpoints  # 140 x 4.02e9 bytes
    assert "TORCH_DIST=" in reference and "the reference model will take 8 GB; choose another" in reference


def test_documents_by_id_without_their_store_are_told(tmp_path, plenty):
    env = settings(tmp_path, **FREE)
    row = '{"prompt": "q", "label": "a", "metadata": {"context_id": "%s", "ground_truth": ["a"]}}\n'
    with DocumentWriter(tmp_path / "train.jsonl.docs") as documents:
        identifier = documents.add("a text")
        documents.commit()
    (tmp_path / "train.jsonl").write_text(row % identifier * 200)
    assert problems(env) == []
    (tmp_path / "dev.jsonl").write_text(row % identifier)
    assert problems(env | {"EVAL_INTERVAL": "5", "EVAL_DATA": str(tmp_path / "dev.jsonl")}) == []
    (tmp_path / "dev.jsonl").write_text(row % "0123456789abcdef")
    (found,) = problems(env | {"EVAL_INTERVAL": "5", "EVAL_DATA": str(tmp_path / "dev.jsonl")})
    assert "dev.jsonl: its first document" in found and "0123456789abcdef" in found
    (tmp_path / "train.jsonl.docs").rename(tmp_path / "elsewhere")
    (found,) = problems(env)
    assert "train.jsonl: its first document" in found
    assert problems(env | {"MEM_DOC_STORE": str(tmp_path / "elsewhere")}) == []


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("host", ["slime", "vime"])
def test_a_model_with_python_of_its_own_is_refused_before_a_host_runs_it(host, name, tmp_path):
    env = settings(tmp_path, host, "qwen2.5-0.5b", **recipe("qwen2.5-0.5b"))
    file = Path(env["HF_CKPT"]) / name
    content = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(content | {"auto_map": {"AutoTokenizer": "own.Own"}}))
    with pytest.raises(ConfigError, match=f"{name} names Python that comes with the model .*TRUST_REMOTE_CODE=1"):
        plan(env)
