"""A cluster's job and its rehearsal: what is kept and shrunk, what its log shows, what the page says, its Adam."""

import math
import sys
from pathlib import Path

import pytest
import torch

from mem_agent.config import Config
from mem_agent.rehearsal import rehearse
from mem_agent.rehearsal.cuda_shim import GroupStepAdamW
from mem_agent.rehearsal.rehearse import GAP, Seen, deviations, faults, plan_rehearsal, read_log, report
from mem_agent.rehearsal.shrink import shrink
from mem_agent.tests.helpers.fake_host import make_model, settings

# --- the rule by which a cluster's settings become a laptop's -------------------------------------------------------


def test_the_paper_s_7b_settings_and_an_agent_without_documents():
    small = shrink(Config(
        mem_chunk_tokens=5000, mem_max_memory=1024, mem_max_final=1024, mem_max_chunks=8, rollout_batch_size=128,
        n_samples_per_prompt=16, global_batch_size=128, lr=1e-6, reward="cosine", reward_args="max_length=9"))
    assert (small.mem_chunk_tokens, small.mem_max_chunks) == (128, 3)
    assert (small.mem_max_memory, small.mem_max_final) == (32, 32)
    assert (small.rollout_batch_size, small.n_samples_per_prompt, small.global_batch_size) == (2, 4, 4)  # two steps
    assert small.lr == 1e-3 and small.reward_args == "reward=cosine settings=max_length=9"
    small = shrink(Config(agent="chat", mem_max_final=300))
    assert (small.mem_max_final, small.mem_max_question, small.mem_chunk_tokens) == (128, 512, 2048)


# --- the plan and its page ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory):
    """``rehearsal(HOST, ...)``: that of a fake checkout, whose model is the same for all."""

    def make(host="slime", **changes):
        folder = tmp_path_factory.mktemp("cluster")
        env = settings(folder, host, "qwen3-0.6b")
        make_model(folder / "model", "qwen3-0.6b", vocab_size=400)
        config = Config.from_env({name: value for name, value in env.items() if name != "NUM_GPUS"} | changes)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rehearse, "nvidia_smi", lambda *_: "")
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
    assert (here.layout.tp, here.layout.pp, here.layout.data_parallel, here.layout.colocate) == (1, 1, 2, False)
    assert here.config.save_path.startswith(f"{cluster.config.save_path}/rehearsals/")
    assert here.config.hf_ckpt == f"{here.config.save_path}/model"
    assert here.command[:2] == cluster.command[:2] == [sys.executable, f"{here.config.host_root}/train.py"]
    assert here.arguments["hooks"][:-1] == cluster.arguments["hooks"][:-1]  # except the place of the YAML
    assert flag(here, "--prompt-data").endswith("train.jsonl@[0:512]") and flag(here, "--eval-prompt-data") == "train"
    page = deviations(of_slime)
    assert "| MEM_CHUNK_TOKENS | 1024 | 128 |" in page and "| --num-layers | 28 | 2 |" in page
    assert "TEMPERATURE" not in page and "--save " not in page and "--hf-checkpoint" not in page


@pytest.mark.parametrize("host,expected", [
    ("slime", "--rollout-external-engine-addrs"), ("vime", "--distributed-backend"),
])
def test_each_host_gets_what_its_cpu_run_needs_and_fully_async_no_evaluation(host, expected, rehearsal):
    found = rehearsal(host, FULLY_ASYNC="1")
    assert expected in found.here.command and expected not in found.cluster.command
    assert found.here.host_settings == {"bf16": False} and "--eval-interval" not in found.here.command
    assert found.here.variables["PYTHONPATH"].split(":")[1].endswith("rehearsal/site")
    assert faults(found, seen(step=0.1, evaluated=False)) == []  # samples of older weights


LOG = """\
\x1b[36m(RolloutManager pid=9)\x1b[0m [2026] metrics.py:268 - perf 0: {'rollout/memory/reward': 0.25, 'perf/x': 1}
\x1b[36m(Actor pid=8)\x1b[0m [2026] model.py:918 - step 0: {'train/loss': -1.5e-08, 'train/grad_norm': nan}\x1b[0m
(Actor pid=8) [2026] train_metric_utils.py:135 - rollout 0: {'rollout/raw_reward': 0.5, 'odd': tensor(1)}
(RolloutManager pid=9839) [2026-11-22 07:11:32] rollout_metrics.py:247 - eval 1: {'eval/train': 0.125}
(RolloutManager pid=1) [2026] rollout.py:1 - rollout 0: 64 trajectories | reward 0.281 | mixed 75%
"""


def test_metrics_of_a_log_by_kind_and_number_and_what_is_shown_while_it_runs(tmp_path, caplog):
    log = tmp_path / "job.log"
    log.write_text(f"{LOG}perf 1: {{'a': -inf}}\n")
    found = read_log(log)
    rollout = {"rollout/memory/reward": 0.25, "perf/x": 1.0, "rollout/raw_reward": 0.5}
    assert found["rollout"] == {0: rollout, 1: {"a": -math.inf}} and found["eval"] == {1: {"eval/train": 0.125}}
    assert found["step"][0]["train/loss"] == -1.5e-08 and math.isnan(found["step"][0]["train/grad_norm"])
    assert list(read_log(log, len(LOG.encode()))["rollout"]) == [1]
    with caplog.at_level("INFO", logger="mem_agent"):
        rehearse.show_progress(f"{LOG}ValueError: no kernel\n")
    assert caplog.messages == [
        "step 0: {'train/loss': -1.5e-08, 'train/grad_norm': nan}",
        "rollout 0: 64 trajectories | reward 0.281 | mixed 75%", "ValueError: no kernel"]


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


# --- Adam of a rehearsed job: torch's, to the last bit; only where it keeps its count differs ------------------------


def parameters() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 4), (4,), (2, 2))]


def adam(kind: type, params: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    groups = [{"params": params[:1], "weight_decay": 0.1}, {"params": params[1:], "weight_decay": 0.0}]
    return kind(groups, lr=1e-2, betas=(0.9, 0.98), eps=1e-8)


def take_steps(optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * min(step, 2) / 2
            for param in group["params"]:
                param.grad = torch.randn(param.shape, generator=generator)
        optimizer.step()


def test_steps_and_those_of_a_loaded_state_are_torchs_and_groups_count_them():
    ours, theirs = parameters(), parameters()
    begun, loaded = adam(GroupStepAdamW, ours), adam(GroupStepAdamW, ours)
    take_steps(begun, 0, 3)
    assert [group["step"] for group in begun.param_groups] == [3, 3]
    assert all(state.keys() == {"exp_avg", "exp_avg_sq"} for state in begun.state.values())
    loaded.load_state_dict(begun.state_dict())
    take_steps(loaded, 3, 6)
    take_steps(adam(torch.optim.AdamW, theirs), 0, 6)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
