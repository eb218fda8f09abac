"""A cluster's job and its rehearsal: what is kept, what is changed, and that the page says so."""

import sys
from pathlib import Path

import pytest

from mem_agent.config import Config
from mem_agent.rehearsal import rehearsal_plan, rehearse
from mem_agent.rehearsal.page import GAP, Seen, deviations, faults, report
from mem_agent.rehearsal.rehearsal_plan import plan_rehearsal
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
            return plan_rehearsal(config, folder, rollouts=2, ranks=2)

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
    assert faults(found, seen(step={GAP: 0.1}, eval={})) == []  # samples of older weights


def test_the_page_lists_every_flag_that_differs_and_no_place(of_slime):
    page = deviations(of_slime)
    assert "| MEM_CHUNK_TOKENS | 1024 | 128 |" in page and "| --num-layers | 28 | 2 |" in page
    assert "TEMPERATURE" not in page and "--save " not in page and "--hf-checkpoint" not in page
    one, other = of_slime.cluster.command, of_slime.here.command
    differing = {word for word in {*one, *other} if word.startswith("--") and (word in one) != (word in other)}
    assert all(f"| {word} |" in page for word in differing)


WELL = {"rollout/memory/reward": 0.5, "rollout/memory/failed": 0.0}


def seen(rollouts=3, first=WELL, resumed_at=2, **of_number_0):
    metrics = {"rollout": dict.fromkeys(range(rollouts), WELL) | {0: first}}
    metrics |= {kind: {0: of} if of is not None else {}
                for kind, of in ({"step": {GAP: 2e-7}, "eval": {"eval/train": 0.125}} | of_number_0).items()}
    return Seen(metrics, resumed_at, Path("/run/hf"), {"train": 60.0, "resume": 30.0})


@pytest.mark.parametrize("found,fault", [
    (seen(), ""),
    (seen(resumed_at=0), "rollout 0, not with 2"),
    (seen(first=WELL | {"rollout/memory/failed": 3.0}), "rollout 0: 3 trajectories failed"),
    (seen(step={GAP: 0.145}), "0.14 apart in their log-probs"),
    (seen(step=None), "step: 0 logged"),
])
def test_what_must_not_be_is_a_fault(found, fault, of_slime):
    wrong = faults(of_slime, found)
    assert [fault in line for line in wrong] == ([True] if fault else [])
    page = report(of_slime, found, wrong)
    assert "| reward | 0.5, 0.5" in page and "with random weights" in page and ", 30 s |" in page
    assert ("**Faults:**" in page and fault in page) if fault else "| 2e-07 |" in page and "eval/train 0.125" in page


@pytest.mark.parametrize("changes,problem", [
    ({"NUM_NODES": "4"}, "MASTER_ADDR"),
    ({"NUM_NODES": "4", "RAY_ADDRESS": "http://head:8265"}, ""),
])
def test_what_the_cluster_would_refuse_is_said_and_a_dry_run_leaves_nothing(
    changes, problem, rehearsal, capsys, monkeypatch
):
    found = rehearsal(**changes)
    monkeypatch.setattr(rehearse, "plan_rehearsal", lambda *_: found)
    monkeypatch.setattr(rehearse, "find_problems", lambda plan: [])
    assert rehearse.main(["--dry-run"]) == bool(problem)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert ["on the cluster" in line and problem in line for line in lines] == ([True] if problem else [])
    assert not Path(found.here.config.save_path).exists()
