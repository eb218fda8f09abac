"""The log hooks leave the host's own logging on, fill the dict it logs, say one line, and survive every mix."""

import itertools
import logging
from types import SimpleNamespace

import pytest

from mem_agent.hooks.sample import Sample
from mem_agent.rollout import log_eval, log_rollout
from mem_agent.tests.helpers.samples import foreign, trajectory, turns_of
from mem_agent.tests.hooks.test_metrics import written

ARGS = SimpleNamespace(mem_agent={}, reward_key=None, eval_reward_key=None, data_parallel_size=4)


def lines(caplog):
    return [r.getMessage() for r in caplog.records if r.name == "mem_agent.rollout"]


@pytest.fixture(autouse=True)
def hear_info(caplog):
    caplog.set_level(logging.INFO, logger="mem_agent.rollout")


def test_rollout_numbers_join_the_hosts(caplog):
    extra = {"rollout/dynamic_filter/drop_zero_std_0": 3}
    samples = [written(reward=1.0), written(reward=0.0, golds=[False, False]), foreign("failed", reward=0.0)]
    assert log_rollout(7, ARGS, samples, extra, 12.34) is False
    assert extra["rollout/dynamic_filter/drop_zero_std_0"] == 3
    assert extra["rollout/memory/reward"] == 0.5
    assert extra["rollout/memory/gold_in_memory/last"] == 0.5
    # Three turns twice and the failure's placeholder are 7 rows; four ranks want 8.
    assert (extra["rollout/memory/rows"], extra["rollout/memory/padding_rows"]) == (8, 1)
    assert lines(caplog) == [
        "rollout 7: 3 trajectories, FAILED 1 (unknown 1) | reward 0.500 | mixed groups 100% | turns 3.0 | "
        "memory 10.0 tokens | cache hits 0% | rows 8 | padding 1 | gold in memory 1: 0%, 2: 50%, last: 50% | 12.3 s"
    ]


def test_eval_numbers_are_kept_apart_by_data_set(caplog):
    extra = {}
    data = {"hqa": {"rewards": [1.0], "truncated": [False], "samples": [written(group=None)]},
            "other": {"rewards": [0.0], "truncated": [True], "samples": [written(group=None, reward=0.0)]},
            "bare": {"rewards": [0.25]}}
    assert log_eval(3, ARGS, data, extra) is False
    assert (extra["eval/hqa/memory/reward"], extra["eval/other/memory/reward"]) == (1.0, 0.0)
    assert {name.split("/")[1] for name in extra} == {"hqa", "other"}
    assert not {"eval/hqa/memory/rows", "eval/hqa/memory/mixed_groups"} & set(extra)
    assert [line.split(" |")[0] for line in lines(caplog)] == [
        "eval 3 hqa: 1 trajectories", "eval 3 other: 1 trajectories"
    ]


KINDS = {
    "ours": lambda: written(),
    "failed": lambda: written(status="failed", failure="timeout", reward=0.0),
    "aborted": lambda: written(status="aborted", reward=None),
    "truncated": lambda: written(status="truncated"),
    "foreign": lambda: foreign(),
    "foreign failed": lambda: foreign("failed", reward=None),
    "no reward": lambda: foreign(reward=None),
    "dict reward": lambda: written(reward={"score": 1.0}),
    "pending": lambda: Sample(),
}


@pytest.mark.parametrize("size", [0, 2])
def test_every_mix_is_survived_and_said_in_one_line(caplog, size):
    args = SimpleNamespace(mem_agent={}, reward_key="score", eval_reward_key="score")
    for kinds in itertools.product(KINDS.values(), repeat=size):
        caplog.clear()
        samples, extra = [kind() for kind in kinds], {}
        assert log_rollout(1, args, samples, extra, 0.5) is False
        assert len(lines(caplog)) == 1 and extra["rollout/memory/trajectories"] == size
        assert all(isinstance(value, int | float) for value in extra.values())
        assert log_eval(1, args, {"d": {"rewards": [0.0] * size, "samples": samples}}, extra) is False


def test_several_answers_to_a_question_are_told_by_the_best_and_by_pass_at_k():
    """Rewards have parts for form; what an answer was worth to its task is 0 or 1."""
    def answer(accuracy, reward):
        return trajectory(turns_of([2]), reward=reward, record={"accuracy": accuracy})

    args = SimpleNamespace(mem_agent={}, n_samples_per_eval_prompt=4)
    asked = [answer(1.0, 1.5), answer(0.0, 0.5), answer(0.0, 0.0), foreign("failed", reward=0.0)]
    extra = {}
    log_eval(0, args, {"sums": {"samples": [*asked, *(answer(0.0, 0.0) for _ in range(4))]}}, extra)
    found = {name.rpartition("/")[2]: value for name, value in extra.items() if "@" in name}
    assert found.keys() == {"best@4", "pass@2", "pass@4"}
    assert (found["pass@2"], found["pass@4"]) == (0.25, 0.5)
