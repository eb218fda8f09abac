"""A cluster's job and its rehearsal: what is kept, what is changed, and that the page says so."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mem_agent.config import Config, ConfigError
from mem_agent.rehearsal import rehearsal_plan, rehearse
from mem_agent.rehearsal.rehearsal_plan import plan_rehearsal
from mem_agent.rehearsal.table import Seen, deviations, faults, report
from mem_agent.tests.helpers.fake_host import make_model, settings


@pytest.fixture
def rehearsal(tmp_path, monkeypatch):
    """``rehearsal(HOST, model, ...)``: that of a fake checkout."""
    monkeypatch.setattr(rehearsal_plan, "nvidia_smi", lambda *_: "")

    def make(host="slime", model="qwen3-0.6b", **changes):
        env = settings(tmp_path, host, model, **changes)
        env = {name: value for name, value in env.items() if name != "NUM_GPUS"} | changes
        make_model(tmp_path / "model", model, vocab_size=400)
        (tmp_path / "megatron" / "megatron" / "training").mkdir(parents=True, exist_ok=True)
        script = tmp_path / host / "scripts" / "models" / f"{model}.sh"
        script.write_text(script.read_text().replace("151936", "400"))
        return plan_rehearsal(Config.from_env(env), tmp_path / "megatron", rollouts=2, ranks=2)

    return make


def flag(plan, name):
    command = plan.command
    return command[command.index(name) + 1]


def test_a_big_model_is_rehearsed_by_a_random_one_of_its_family(rehearsal):
    found = rehearsal()
    assert found.random_model
    here, cluster = found.here, found.cluster
    assert (flag(cluster, "--num-layers"), flag(here, "--num-layers")) == ("28", "2")
    assert flag(here, "--vocab-size") == "400" and "--qk-layernorm" in here.command
    assert here.config.save_path.startswith(f"{cluster.config.save_path}/rehearsals/")
    assert here.config.hf_ckpt == f"{here.config.save_path}/model"


def test_what_runs_is_the_unedited_driver_with_the_same_hooks(rehearsal):
    found = rehearsal(KL_COEF="0")
    driver = [sys.executable, str(found.here.checkout.root / "train.py")]
    assert found.here.command[:2] == found.cluster.command[:2] == driver
    assert found.here.arguments["hooks"][:-1] == found.cluster.arguments["hooks"][:-1]  # except the place of the YAML
    assert flag(found.here, "--prompt-data").endswith("train.jsonl@[0:512]")


@pytest.mark.parametrize(
    "host,expected", [("slime", "--rollout-external-engine-addrs"), ("vime", "--distributed-backend")]
)
def test_each_host_gets_what_its_cpu_run_needs(host, expected, rehearsal):
    found = rehearsal(host)
    assert expected in found.here.command and expected not in found.cluster.command
    assert found.here.host_settings == {"bf16": False}
    assert found.here.variables["PYTHONPATH"].split(":")[1].endswith("rehearsal/site")


def test_the_cluster_s_division_is_left_to_the_cluster(rehearsal):
    found = rehearsal(HOST_ARGS="--context-parallel-size 2 --lr 5e-6 --rollout-num-gpus-per-engine 2")
    assert flag(found.cluster, "--context-parallel-size") == "2" and found.cluster.layout.engine_gpus == 2
    assert found.here.arguments["host_args"] == ["--lr", "5e-6"]
    assert flag(found.here, "--context-parallel-size") == flag(found.here, "--rollout-num-gpus-per-engine") == "1"


def test_evaluation_is_the_user_s_or_of_training_rows_and_none_in_fully_async(rehearsal, tmp_path):
    assert flag(rehearsal().here, "--eval-prompt-data") == "train"
    (tmp_path / "dev set.jsonl").write_text((tmp_path / "train.jsonl").read_text())
    found = rehearsal(EVAL_INTERVAL="5", EVAL_DATA=f"'{tmp_path}/dev set.jsonl'")
    assert found.here.config.eval_files == [f"{tmp_path}/dev set.jsonl@[0:8]"]
    assert "--eval-interval" not in rehearsal(FULLY_ASYNC="1").here.command


def test_the_page_lists_every_flag_that_differs_and_no_place(rehearsal):
    found = rehearsal(TEMPERATURE="0.9", MEM_CHUNK_TOKENS="1024")
    page = deviations(found)
    assert "| MEM_CHUNK_TOKENS | 1024 | 128 |" in page and "| --num-layers | 28 | 2 |" in page
    assert "TEMPERATURE" not in page and "--save " not in page and "--hf-checkpoint" not in page
    one, other = found.cluster.command, found.here.command
    differing = {w for w in {*one, *other} if w.startswith("--") and (w in one) != (w in other)}
    assert all(f"| {word} |" in page for word in differing)


def test_the_report_says_what_was_seen(rehearsal):
    metrics = {
        "rollout": {0: {"rollout/memory/reward": 0.25}, 1: {"rollout/memory/reward": 0.5}},
        "step": {0: {"train/train_rollout_logprob_abs_diff": 2e-7}}, "eval": {0: {"eval/train": 0.125}},
    }
    seen = Seen(metrics, 1, "/run/hf", {"train": 60.0, "resume": 30.0, "convert": 2.0}, "0123456789")
    page = report(rehearsal(), seen, [])
    assert "train.py of slime 01234567" in page
    assert "| reward | 0.250, 0.500 |" in page and "| 2.0e-07 |" in page and "eval/train 0.125" in page
    assert "continued with rollout 1, 30 s" in page and "two layers with random weights" in page


WELL = {"rollout/memory/reward": 0.5, "rollout/memory/failed": 0.0}


@pytest.mark.parametrize("rollouts,step,fault", [
    ({0: WELL, 1: WELL, 2: WELL}, {"train/train_rollout_logprob_abs_diff": 2e-7}, ""),
    ({0: WELL, 1: WELL}, {}, "2 of 3 rollouts were logged"),
    ({0: WELL, 1: WELL | {"rollout/memory/failed": 3.0}, 2: WELL}, {}, "rollout 1: 3 trajectories failed"),
    ({0: WELL, 1: WELL, 2: WELL}, {"train/train_rollout_logprob_abs_diff": 0.145}, "0.14 apart in their log-probs"),
    ({0: WELL, 1: WELL, 2: WELL}, {"train/grad_norm": math.inf}, "gradient norm is not finite"),
])
def test_what_must_not_be_is_a_fault(rollouts, step, fault, rehearsal):
    metrics = {"rollout": rollouts, "step": {4: step}, "eval": {0: {}}}
    seen = Seen(metrics, 2, "", {"train": 1, "resume": 1, "convert": 1}, "")
    found = rehearsal()
    assert [fault in line for line in faults(found, seen)] == ([True] if fault else [])
    page = report(found, seen, faults(found, seen))
    assert ("**Faults:**" in page and fault in page) if fault else "No faults were found." in page


@pytest.mark.parametrize("changes,fault", [
    ({"resumed_at": 0}, "began with rollout 0, not with 2"),
    ({"metrics": {"rollout": {0: WELL, 1: WELL, 2: WELL}, "eval": {0: {}}}}, "no optimizer step"),
    ({"metrics": {"rollout": {0: WELL, 1: WELL, 2: WELL}, "step": {0: {}}}}, "no evaluation"),
])
def test_what_is_missing_is_a_fault(changes, fault, rehearsal):
    whole = {"rollout": {0: WELL, 1: WELL, 2: WELL}, "step": {0: {}}, "eval": {0: {}}}
    seen = Seen(whole, 2, "", {}, "")
    assert faults(found := rehearsal(), seen) == []
    assert [fault in line for line in faults(found, replace(seen, **changes))] == [True]


@pytest.mark.parametrize("given,here", [
    ("", "@[0:512]"), ("@[100:]", "@[100:612]"), ("@[100:150]", "@[100:150]"), ("@[:9000]", "@[0:512]"),
    ("@[-50:]", "@[-50:]"),
])
def test_a_rehearsal_reads_512_rows_of_what_the_user_names(given, here):
    assert rehearsal_plan.first_rows(f"train.jsonl{given}", 512) == f"train.jsonl{here}"


def test_too_little_memory_and_colocation_are_a_line_each(rehearsal):
    found = rehearsal()
    assert rehearse.own_problems(found, 64 * 10**9) == []
    (line,) = rehearse.own_problems(found, 2 * 10**9)
    assert "2.0 GB" in line and "--ranks" in line
    (line,) = rehearse.own_problems(rehearsal(HOST_ARGS="--colocate"), 64 * 10**9)
    assert "HOST_ARGS: --colocate" in line


@pytest.mark.parametrize("changes,problem", [
    ({"GLOBAL_BATCH_SIZE": "2", "TP": "1"}, "GLOBAL_BATCH_SIZE"),
    ({"LR_WARMUP_STEPS": "500"}, "LR_WARMUP_STEPS"),
    ({"EVAL_INTERVAL": "5"}, "EVAL_DATA"),
    ({"NUM_NODES": "4"}, "MASTER_ADDR"),
    ({"NUM_NODES": "4", "RAY_ADDRESS": "http://head:8265"}, ""),
    ({}, ""),
])
def test_what_the_cluster_would_refuse_is_said(changes, problem, rehearsal, capsys, monkeypatch):
    found = rehearsal(**changes)
    monkeypatch.setattr(rehearse, "settled", lambda *_: found)
    monkeypatch.setattr(rehearse, "find_problems", lambda plan: [])
    monkeypatch.setattr(rehearse, "own_problems", lambda rehearsal, available: [])
    assert rehearse.main(["--dry-run"]) == bool(problem)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert ["on the cluster" in line and problem in line for line in lines] == ([True] if problem else [])


@pytest.mark.parametrize("arguments", [["--dry-run"], []])
def test_what_starts_nothing_leaves_nothing(arguments, rehearsal, monkeypatch):
    found = rehearsal()
    monkeypatch.setattr(rehearse, "settled", lambda *_: found)
    monkeypatch.setattr(rehearse, "find_problems", lambda plan: [] if arguments else ["a problem"])
    monkeypatch.setattr(rehearse, "own_problems", lambda rehearsal, available: [])
    assert rehearse.main(arguments) == (0 if arguments else 1)
    assert not Path(found.here.config.save_path).exists()


def test_samples_of_older_weights_are_no_fault_of_fully_async(rehearsal):
    seen = Seen({"rollout": {0: WELL, 1: WELL, 2: WELL}, "step": {0: {"train/train_rollout_logprob_abs_diff": 0.1}}},
                2, "", {}, "")
    assert faults(rehearsal(FULLY_ASYNC="1"), seen) == []


def test_a_resume_changes_the_number_of_rollouts_alone(rehearsal):
    plan = rehearsal().here
    more = rehearse.with_config(plan, plan.config.replace(num_rollout=3))
    changed = [(a, b) for a, b in zip(plan.command, more.command, strict=True) if a != b]
    assert changed == [("2", "3")]


@pytest.mark.parametrize("settings", [{"host": "local"}, {"host": "slime", "loss": "sft"}])
def test_what_has_no_rollouts_in_a_host_is_refused(settings, tmp_path):
    with pytest.raises(ConfigError, match="REHEARSE=1"):
        rehearse.settled(Config(**settings), tmp_path, rollouts=2, ranks=2)


def test_without_a_clone_of_megatron_its_setting_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SGLANG_PYTHON", sys.executable)
    env = settings(tmp_path, MEGATRON_ROOT="")
    with pytest.raises(ConfigError, match="MEGATRON_ROOT"):
        rehearse.settled(Config.from_env(env), tmp_path, rollouts=2, ranks=2)
