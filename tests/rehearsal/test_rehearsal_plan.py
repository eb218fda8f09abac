"""A cluster's job and its rehearsal: what is kept, what is changed, what its log shows, and what the page says."""

import math
import sys
from pathlib import Path

import pytest

from mem_agent.config import Config
from mem_agent.rehearsal import rehearsal_plan, rehearse
from mem_agent.rehearsal.rehearsal_plan import plan_rehearsal
from mem_agent.rehearsal.rehearse import GAP, Seen, deviations, faults, progress_of, read_log, report
from mem_agent.tests.helpers.fake_host import make_model, settings


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory):
    """``rehearsal(HOST, ...)``: that of a fake checkout, whose model is the same for all."""

    def make(host="slime", **changes):
        folder = tmp_path_factory.mktemp("cluster")
        env = settings(folder, host, "qwen3-0.6b")
        make_model(folder / "model", "qwen3-0.6b", vocab_size=400)
        config = Config.from_env({name: value for name, value in env.items() if name != "NUM_GPUS"} | changes)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rehearsal_plan, "nvidia_smi", lambda *_: "")
            patch.setenv("SGLANG_PYTHON", sys.executable)
            return plan_rehearsal(config, rollouts=2, ranks=2)

    return make


@pytest.fixture(scope="module")
def of_slime(rehearsal):
    arguments = "--context-parallel-size 2 --lr 5e-6 --rollout-num-gpus-per-engine 2 --colocate"
    return rehearsal(KL_COEF="0", TEMPERATURE="0.9", MEM_CHUNK_TOKENS="1024", HOST_ARGS=arguments)


def flag(plan, name):
    command = plan.command
    return command[len(command) - command[::-1].index(name)]  # the last one wins


def test_a_big_model_is_rehearsed_by_a_random_one_with_the_unedited_driver_and_the_same_hooks(of_slime):
    here, cluster = of_slime.here, of_slime.cluster
    assert of_slime.random_model and "--qk-layernorm" in here.command
    assert (flag(cluster, "--num-layers"), flag(here, "--num-layers")) == ("28", "2")
    assert flag(here, "--vocab-size") == "400"
    assert here.config.save_path.startswith(f"{cluster.config.save_path}/rehearsals/")
    assert here.config.hf_ckpt == f"{here.config.save_path}/model"
    assert here.command[:2] == cluster.command[:2] == [sys.executable, f"{here.config.host_root}/train.py"]
    assert here.arguments["hooks"][:-1] == cluster.arguments["hooks"][:-1]  # except the place of the YAML
    assert flag(here, "--prompt-data").endswith("train.jsonl@[0:512]") and flag(here, "--eval-prompt-data") == "train"


@pytest.mark.parametrize("host,expected", [
    ("slime", "--rollout-external-engine-addrs"), ("vime", "--distributed-backend"),
])
def test_each_host_gets_what_its_cpu_run_needs_and_fully_async_no_evaluation(host, expected, rehearsal):
    found = rehearsal(host, FULLY_ASYNC="1")
    assert expected in found.here.command and expected not in found.cluster.command
    assert found.here.host_settings == {"bf16": False} and "--eval-interval" not in found.here.command
    assert found.here.variables["PYTHONPATH"].split(":")[1].endswith("rehearsal/site")
    assert faults(found, seen(step=0.1, evaluated=False)) == []  # samples of older weights


def test_the_page_lists_every_flag_that_differs_and_no_place(of_slime):
    page = deviations(of_slime)
    assert "| MEM_CHUNK_TOKENS | 1024 | 128 |" in page and "| --num-layers | 28 | 2 |" in page
    assert "TEMPERATURE" not in page and "--save " not in page and "--hf-checkpoint" not in page


SLIME = """\
\x1b[36m(RolloutManager pid=9)\x1b[0m [2026] metrics.py:268 - perf 0: {'rollout/memory/reward': 0.25, 'perf/x': 1}
\x1b[36m(Actor pid=8)\x1b[0m [2026] model.py:918 - step 0: {'train/loss': -1.5e-08, 'train/grad_norm': nan}\x1b[0m
(Actor pid=8) [2026] train_metric_utils.py:135 - rollout 0: {'rollout/raw_reward': 0.5, 'odd': tensor(1)}
(RolloutManager pid=9839) [2026-11-22 07:11:32] rollout_metrics.py:247 - eval 1: {'eval/train': 0.125}
someone says step 3: {not a dict}
perf 0: {'perf/x': 2, 'perf/y': -inf}
"""
OURS = "rollout 0: 64 trajectories | reward 0.281 | mixed 75%"


def test_metrics_of_a_log_by_kind_and_number_and_what_is_shown_while_it_runs(tmp_path):
    log = tmp_path / "job.log"
    log.write_text(f"{SLIME}perf 1: {{'a': 1}}\n")
    found = read_log(log)
    rollout = {"rollout/memory/reward": 0.25, "perf/x": 2.0, "rollout/raw_reward": 0.5, "perf/y": -math.inf}
    assert found["rollout"] == {0: rollout, 1: {"a": 1.0}} and found["eval"] == {1: {"eval/train": 0.125}}
    assert found["step"][0]["train/loss"] == -1.5e-08 and math.isnan(found["step"][0]["train/grad_norm"])
    assert list(read_log(log, len(SLIME.encode()))["rollout"]) == [1]
    lines = [f"(RolloutManager pid=1) [2026] rollout.py:1 - {OURS}", *SLIME.splitlines()[:3], "ValueError: no kernel"]
    assert list(map(progress_of, lines)) == [
        OURS, "", "step 0: {'train/loss': -1.5e-08, 'train/grad_norm': nan}", "", "ValueError: no kernel"]


WELL = {"rollout/memory/reward": 0.5, "rollout/memory/failed": 0.0}


def seen(first=WELL, resumed_at=2, step=2e-7, evaluated=True):
    metrics = {"rollout": {0: first, 1: WELL, 2: WELL}, "step": {0: {GAP: step}} if step else {},
               "eval": {0: {"eval/train": 0.125}} if evaluated else {}}
    return Seen(metrics, resumed_at, Path("/run/hf"), {"train": 60.0, "resume": 30.0})


@pytest.mark.parametrize("found,fault", [
    (seen(), ""),
    (seen(resumed_at=0), "rollout 0, not with 2"),
    (seen(first=WELL | {"rollout/memory/failed": 3.0}), "rollout 0: 3 trajectories failed"),
    (seen(step=0.145), "0.14 apart in their log-probs"),
    (seen(step=None), "step: 0 logged"),
])
def test_what_must_not_be_is_a_fault(found, fault, of_slime):
    wrong = faults(of_slime, found)
    assert [fault in line for line in wrong] == ([True] if fault else [])
    page = report(of_slime, found, wrong)
    assert "| reward | 0.5, 0.5" in page and "with random weights" in page and ", 30 s |" in page
    assert ("**Faults:**" in page and fault in page) if fault else "| 2e-07 |" in page and "eval/train 0.125" in page


def test_what_the_cluster_would_refuse_is_said_and_a_dry_run_leaves_nothing(rehearsal, capsys, monkeypatch):
    found, real = rehearsal(NUM_NODES="4"), rehearse.find_problems
    monkeypatch.setattr(rehearse, "plan_rehearsal", lambda *_: found)
    monkeypatch.setattr(rehearse, "find_problems", lambda plan, of_machine=True: [] if of_machine else real(
        plan, of_machine=False))
    assert rehearse.main(["--dry-run"]) == 1
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert "on the cluster" in line and "MASTER_ADDR" in line
    assert not Path(found.here.config.save_path).exists()
