"""What is read of a host's log."""

import math

import pytest

from mem_agent.rehearsal.host_log import progress_of, read_log, read_metrics

SLIME = """\
\x1b[36m(RolloutManager pid=9)\x1b[0m [2026] metrics.py:268 - perf 0: {'rollout/memory/reward': 0.25, 'perf/x': 1}
\x1b[36m(Actor pid=8)\x1b[0m [2026] model.py:918 - step 0: {'train/loss': -1.5e-08, 'train/grad_norm': nan}
(Actor pid=8) [2026] train_metric_utils.py:135 - rollout 0: {'rollout/raw_reward': 0.5, 'odd': tensor(1)}
(RolloutManager pid=9839) [2026-11-22 07:11:32] rollout_metrics.py:247 - eval 1: {'eval/train': 0.125}
someone says step 3: {not a dict}
"""


def test_metrics_by_kind_and_number():
    found = read_metrics(SLIME)
    assert found["rollout"] == {0: {"rollout/memory/reward": 0.25, "perf/x": 1.0}}
    assert found["eval"] == {1: {"eval/train": 0.125}}
    assert found["step"][0]["train/loss"] == -1.5e-08 and math.isnan(found["step"][0]["train/grad_norm"])


def test_an_endless_loss_hides_nothing_beside_it():
    found = read_metrics("step 1: {'train/loss': -inf, 'train/grad_norm': 2.0}")["step"][1]
    assert math.isnan(found["train/loss"]) and found["train/grad_norm"] == 2.0


@pytest.mark.parametrize("text", ["{1, 2}", "{{}: 1}", "{not a dict}"])
def test_what_is_no_printed_dict_of_numbers_is_skipped(text):
    assert read_metrics(f"step 0: {text}\nperf 1: {{'b': 1}}")["rollout"] == {1: {"b": 1.0}}


def test_a_log_is_read_from_where_a_run_began(tmp_path):
    log, first = tmp_path / "job.log", "perf 0: {'ä': 1}\n"
    log.write_text(first + "perf 1: {'a': 1}\n")
    assert list(read_log(log, len(first.encode()))["rollout"]) == [1]


def test_what_is_logged_last_of_a_number_stands():
    text = "perf 2: {'a': 1, 'b': 1}\nperf 2: {'a': 2}\n"
    assert read_metrics(text) == {"rollout": {2: {"a": 2.0, "b": 1.0}}}


def test_progress_is_our_summary_a_step_or_an_error_and_nothing_else():
    ours = "(RolloutManager pid=1) [2026] rollout.py:195 - rollout 0: 64 trajectories | reward 0.281 | mixed 75%"
    assert progress_of(ours) == "rollout 0: 64 trajectories | reward 0.281 | mixed 75%"
    assert progress_of("rollout 2 {3} eval 4 {5} " + ours + " {}").startswith("rollout 0: 64 trajectories | reward")
    evaluation = "[2026] rollout.py:207 - eval 0 train: 8 trajectories | reward 0.125"
    assert progress_of(evaluation) == "eval 0 train: 8 trajectories | reward 0.125"
    assert progress_of(SLIME.splitlines()[1]) == "step 0: loss -1.5e-08 | grad_norm nan"
    assert progress_of("ValueError: no such file") == "ValueError: no such file"
    assert progress_of("(Actor pid=4) RuntimeError: gloo") == "(Actor pid=4) RuntimeError: gloo"
    vllm = "(VLLMEngine pid=7) (EngineCore pid=8) ERROR 11-22 10:43:00 [core.py:1512] RuntimeError: no kernel"
    assert progress_of(vllm) == "engine: RuntimeError: no kernel"
    assert progress_of("(APIServer pid=9) ERROR 11-22 10:43:00 [llm.py:9] Traceback (most recent call last):") == ""
    assert progress_of("[2026] arguments.py:1 - lr ........ 0.1") == ""
