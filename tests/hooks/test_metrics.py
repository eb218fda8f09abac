"""Numbers of a rollout and of an evaluation: by hand, for every mix of Samples, and through the hosts' log hooks."""

import itertools
import logging
from types import SimpleNamespace

import pytest

from mem_agent.hooks.metrics import find_golds, rollout_metrics
from mem_agent.hooks.sample import MemoryRecord, Sample
from mem_agent.rollout import log_eval, log_rollout
from mem_agent.tests.helpers.samples import foreign, trajectory, turn


def written(golds=(False, True), tokens=10, cached=0, group=0, reward=1.0, status="completed", **fields):
    """A memory for each of ``golds``, prompts of 100 tokens."""
    turns = [turn(5, prompt=100, cached_tokens=cached * i) for i in range(len(golds) + 1)]
    counts = {"turns": len(turns), "chunks": len(golds), "memory_tokens": tokens, "document_tokens": 8,
              "prompt_tokens": 100 * len(turns), "response_tokens": 5 * len(turns), "truncated_memories": 1,
              "empty_updates": 2, "dropped_tokens": 3, "cached_tokens": sum(t.cached_tokens for t in turns)}
    memories = [MemoryRecord(tokens, gold) for gold in golds]
    fields = {"counts": counts, "memories": memories, "reward": reward, "group_index": group} | fields
    return trajectory(turns, status, **fields)


def test_two_documents_by_hand():
    short = written([False, True], tokens=10, cached=40, reward=1.0)
    long = written([False, False, True, True], tokens=20, cached=10, reward=0.0)
    assert rollout_metrics([short, long]) == {
        "trajectories": 2, "aborted": 0, "failed": 0, "truncated_answers": 0,
        "reward": 0.5, "mixed_groups": 1.0,
        "turns": 4.0,  # (3 + 5) / 2: each chunk and the answer
        "chunks": 3.0, "memory_tokens": 15.0,
        "prompt_tokens": 400.0, "response_tokens": 20.0, "document_tokens": 8.0,
        "truncated_memories": 2, "empty_updates": 4, "dropped_tokens": 6,
        "prefix_cache_hit_rate": 220 / 800,  # 0 + 40 + 80 and 0 + 10 + 20 + 30 + 40, of 3 + 5 prompts of 100
        "memory_tokens/turn_1": 15.0, "memory_tokens/turn_2": 15.0, "memory_tokens/turn_3-4": 20.0,
        "gold_in_memory/turn_1": 0.0,
        "gold_in_memory/turn_2": 1 / 2,  # the short one has it, the long one not yet
        "gold_in_memory/turn_3-4": 1.0,  # the long one alone, twice
        "gold_in_memory/last": 1.0,
    }


@pytest.mark.parametrize("golds,text,found", [
    (["Mumbai", "Bombay"], "lives in Bombay now", True),
    (["Mumbai"], "Navi Mumbaikar", False),
    (["The Red One"], "it was red one", True),  # articles and case do not matter
    (["red"], "", False),
    (["No."], "no idea", None),
    (["yes", "red"], "yes", False),  # only red is looked for
    (["A"], "plan a", True),
])
def test_a_gold_is_found_where_containment_tells_something(golds, text, found):
    assert find_golds([[1, 2, 3]], lambda ids: text, golds) == [MemoryRecord(3, found)]


def test_only_trajectories_that_ended_by_themselves_are_in_the_means():
    samples = [written([True], reward=1.0), written([False], reward=0.0, status="truncated"),
               written([False] * 9, reward=0.0, status="failed", failure="timeout"),
               written([False] * 9, reward=0.0, status="aborted")]
    metrics = rollout_metrics(samples)
    assert (metrics["trajectories"], metrics["failed/timeout"], metrics["aborted"]) == (4, 1, 1)
    assert metrics["reward"] == 0.5 and metrics["turns"] == 2.0 and metrics["gold_in_memory/last"] == 0.5


# --- the log hooks --------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def lines(caplog):
    caplog.set_level(logging.INFO, logger="mem_agent.rollout")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "mem_agent.rollout"]


def test_rollout_numbers_join_the_hosts(lines):
    extra = {"rollout/dynamic_filter/drop_zero_std_0": 3}
    samples = [written(reward=1.0), written(reward=0.0, golds=[False, False]), foreign("failed", reward=0.0)]
    args = SimpleNamespace(mem_agent={}, data_parallel_size=4)
    assert log_rollout(7, args, samples, extra, 12.34) is False
    assert extra["rollout/dynamic_filter/drop_zero_std_0"] == 3 and extra["rollout/memory/reward"] == 0.5
    # Three turns twice and the failure's placeholder are 7 rows; four ranks want 8.
    assert (extra["rollout/memory/rows"], extra["rollout/memory/padding_rows"]) == (8, 1)
    assert lines() == [
        "rollout 7: 3 trajectories | FAILED 1 (unknown 1) | reward 0.500 | mixed groups 100% | turns 3.0 | "
        "memory 10.0 tokens | cache hits 0% | rows 8 | padding 1 | gold in memory 1: 0%, 2: 50%, last: 50% | 12.3 s"
    ]


def test_eval_numbers_are_kept_apart_by_data_set(lines):
    extra, args = {}, SimpleNamespace(mem_agent={})
    data = {"hqa": {"rewards": [1.0], "samples": [written(group=None)]},
            "other": {"rewards": [0.0], "samples": [written(group=None, reward=0.0)]}, "bare": {"rewards": [0.25]}}
    assert log_eval(3, args, data, extra) is False
    assert (extra["eval/hqa/memory/reward"], extra["eval/other/memory/reward"]) == (1.0, 0.0)
    assert {name.split("/")[1] for name in extra} == {"hqa", "other"}
    assert [line.split(" |")[0] for line in lines()] == ["eval 3 hqa: 1 trajectories", "eval 3 other: 1 trajectories"]


KINDS = [
    lambda: written(), lambda: written(status="failed", failure="timeout", reward=0.0),
    lambda: written(status="aborted", reward=None), lambda: written(status="truncated"), lambda: foreign(),
    lambda: foreign("failed", reward=None), lambda: foreign(reward=None), lambda: written(reward={"score": 1.0}),
    Sample,
]


@pytest.mark.parametrize("size", [0, 2])
def test_every_mix_is_survived_and_said_in_one_line(caplog, lines, size):
    args = SimpleNamespace(mem_agent={}, reward_key="score", eval_reward_key="score")
    for kinds in itertools.product(KINDS, repeat=size):
        caplog.clear()
        samples, extra = [kind() for kind in kinds], {}
        assert log_rollout(1, args, samples, extra, 0.5) is False
        assert len(lines()) == 1 and extra["rollout/memory/trajectories"] == size
        assert log_eval(1, args, {"d": {"rewards": [0.0] * size, "samples": samples}}, extra) is False
