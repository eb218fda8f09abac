"""What is read off a host's log for the page and while it runs."""

import math

import pytest

from mem_agent.rehearsal.page import progress_of, read_log

SLIME = """\
\x1b[36m(RolloutManager pid=9)\x1b[0m [2026] metrics.py:268 - perf 0: {'rollout/memory/reward': 0.25, 'perf/x': 1}
\x1b[36m(Actor pid=8)\x1b[0m [2026] model.py:918 - step 0: {'train/loss': -1.5e-08, 'train/grad_norm': nan}\x1b[0m
(Actor pid=8) [2026] train_metric_utils.py:135 - rollout 0: {'rollout/raw_reward': 0.5, 'odd': tensor(1)}
(RolloutManager pid=9839) [2026-11-22 07:11:32] rollout_metrics.py:247 - eval 1: {'eval/train': 0.125}
someone says step 3: {not a dict}
perf 0: {'perf/x': 2, 'perf/y': -inf}
"""


def test_metrics_by_kind_and_number_and_what_is_logged_last_stands(tmp_path):
    log = tmp_path / "job.log"
    log.write_text(SLIME)
    found = read_log(log)
    rollout = {"rollout/memory/reward": 0.25, "perf/x": 2.0, "rollout/raw_reward": 0.5, "perf/y": -math.inf}
    assert found["rollout"] == {0: rollout}
    assert found["eval"] == {1: {"eval/train": 0.125}}
    assert found["step"][0]["train/loss"] == -1.5e-08 and math.isnan(found["step"][0]["train/grad_norm"])
    log.write_text(SLIME + "perf 1: {'a': 1}\n")
    assert list(read_log(log, len(SLIME.encode()))["rollout"]) == [1]


OURS = "rollout 0: 64 trajectories | reward 0.281 | mixed 75%"
VLLM = "(EngineCore pid=8) ERROR 11-22 10:43:00 [core.py:1512]"


@pytest.mark.parametrize("line,shown", [
    (f"rollout 2 {{3}} eval 4 {{5}} (RolloutManager pid=1) [2026] rollout.py:195 - {OURS}", OURS),
    ("[2026] rollout.py:207 - eval 0 train: 8 trajectories | reward 0.1", "eval 0 train: 8 trajectories | reward 0.1"),
    (SLIME.splitlines()[1], "step 0: loss -1.5e-08 | grad_norm nan"),
    (f"{VLLM} RuntimeError: no kernel", f"{VLLM} RuntimeError: no kernel"),
    (f"{VLLM} Traceback (most recent call last):", ""),
])
def test_progress_is_our_summary_a_step_or_an_error_and_nothing_else(line, shown):
    assert progress_of(line) == shown
