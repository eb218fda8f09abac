"""A cluster's job and its rehearsal: what is kept, what is changed, and that the page says so."""

import math
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from mem_agent.config import Config, ConfigError
from mem_agent.rehearsal import rehearsal_plan, rehearse
from mem_agent.rehearsal.page import GAP, Seen, deviations, faults, report
from mem_agent.rehearsal.rehearsal_plan import plan_rehearsal, prepared_megatron
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


def test_the_cluster_s_division_is_left_to_the_cluster(of_slime):
    assert flag(of_slime.cluster, "--context-parallel-size") == "2" and of_slime.cluster.layout.engine_gpus == 2
    assert of_slime.here.arguments["host_args"] == ["--lr", "5e-6"]
    assert flag(of_slime.here, "--context-parallel-size") == "1" and of_slime.here.layout.engine_gpus == 1


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
    (seen(rollouts=2), "rollout: 2 logged"),
    (seen(resumed_at=0), "rollout 0, not with 2"),
    (seen(first=WELL | {"rollout/memory/failed": 3.0}), "rollout 0: 3 trajectories failed"),
    (seen(step={GAP: 0.145}), "0.14 apart in their log-probs"),
    (seen(step={"train/grad_norm": math.inf}), "gradient norm"),
    (seen(step=None), "step: 0 logged"),
    (seen(eval=None), "eval: 0 logged"),
])
def test_what_must_not_be_is_a_fault(found, fault, of_slime):
    wrong = faults(of_slime, found)
    assert [fault in line for line in wrong] == ([True] if fault else [])
    page = report(of_slime, found, wrong)
    assert "| reward | 0.5, 0.5" in page and "with random weights" in page and ", 30 s |" in page
    assert ("**Faults:**" in page and fault in page) if fault else "| 2e-07 |" in page and "eval/train 0.125" in page


@pytest.mark.parametrize("given,here", [
    ("", "@[0:512]"), ("@[100:]", "@[100:612]"), ("@[100:150]", "@[100:150]"), ("@[:9000]", "@[0:512]"),
    ("@[-50:]", "@[-50:]"),
])
def test_a_rehearsal_reads_512_rows_of_what_the_user_names(given, here):
    assert rehearsal_plan.first_rows(f"train.jsonl{given}", 512) == f"train.jsonl{here}"


@pytest.mark.parametrize("changes,problem", [
    ({"LR_WARMUP_STEPS": "500"}, "LR_WARMUP_STEPS"),
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


@pytest.mark.parametrize("changes,named", [
    ({"HOST": "local"}, "REHEARSE=1"), ({"LOSS": "sft"}, "REHEARSE=1"), ({"MEGATRON_ROOT": ""}, "MEGATRON_ROOT"),
])
def test_what_cannot_be_rehearsed_is_refused(changes, named, tmp_path, monkeypatch):
    monkeypatch.setenv("SGLANG_PYTHON", sys.executable)
    with pytest.raises(ConfigError, match=named):
        plan_rehearsal(Config.from_env(settings(tmp_path) | changes), tmp_path, rollouts=2, ranks=2)


def test_megatron_is_taken_at_the_hosts_commit_with_its_patches(tmp_path):
    clone, docker = tmp_path / "clone", tmp_path / "slime" / "docker"
    file = clone / "megatron" / "core.py"
    for folder in (file.parent, docker / "patch" / "latest"):
        folder.mkdir(parents=True)

    def git(text, *arguments):
        file.write_text(text)
        command = ["git", "-C", clone, "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    git("as pinned\n", "init")
    git("as pinned\n", "add", ".")
    git("as pinned\n", "commit", "-m", "pinned")
    pinned = git("as pinned\n", "rev-parse", "HEAD")
    (docker / "patch" / "latest" / "megatron.patch").write_text(git("patched\n", "diff"))
    git("newer\n", "commit", "-am", "newer")
    for commit in (pinned, pinned, "0" * 40):
        (docker / "Dockerfile").write_text(f"ARG MEGATRON_COMMIT={commit}")
        with pytest.raises(ConfigError, match="MEGATRON_ROOT") if commit != pinned else nullcontext():
            made = prepared_megatron(tmp_path / "slime", str(clone), tmp_path / "home")
        assert (made / "megatron" / "core.py").read_text() == "patched\n" and file.read_text() == "newer\n"
