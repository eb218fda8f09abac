"""Numbers of a rollout and of an evaluation: by hand, and through the hosts' log hooks."""

import logging
from types import SimpleNamespace

import pytest

from mem_agent.hooks.metrics import find_golds, rollout_metrics
from mem_agent.hooks.sample import MemoryRecord
from mem_agent.rollout import log_eval, log_rollout
from mem_agent.tests.helpers.samples import foreign, trajectory, turn


def written(golds=(False, True), tokens=10, cached=0, status="completed", **fields):
    """A memory for each of ``golds``, prompts of 100 tokens."""
    turns = [turn(5, prompt=100, cached_tokens=cached * i) for i in range(len(golds) + 1)]
    counts = {"turns": len(turns), "chunks": len(golds), "memory_tokens": tokens, "prompt_tokens": 100 * len(turns),
              "empty_updates": 2, "dropped_tokens": 3, "cached_tokens": sum(t.cached_tokens for t in turns)}
    memories = [MemoryRecord(tokens, gold) for gold in golds]
    return trajectory(turns, status, **{"counts": counts, "memories": memories, "group_index": 0} | fields)


def test_by_hand_over_the_two_trajectories_that_ended_by_themselves():
    short = written([False, True], tokens=10, cached=40, reward=1.0)
    long = written([False, False, True, True], tokens=20, cached=10, reward=0.0, status="truncated")
    lost = [written(reward=0.0, status="failed", failure="timeout"), written(reward=None, status="aborted")]
    assert rollout_metrics([short, long, *lost]) == {
        "trajectories": 4, "aborted": 1, "failed": 1, "failed/timeout": 1, "truncated_answers": 1, "reward": 0.5,
        "mixed_groups": 1.0,
        "turns": 4.0,  # (3 + 5) / 2: each chunk and the answer
        "chunks": 3.0, "memory_tokens": 15.0, "prompt_tokens": 400.0, "empty_updates": 4, "dropped_tokens": 6,
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
    (["No."], "no idea", None),
    (["yes", "red"], "yes", False),  # only red is looked for
])
def test_a_gold_is_found_where_containment_tells_something(golds, text, found):
    assert find_golds([[1, 2, 3]], lambda ids: text, golds) == [MemoryRecord(3, found)]


# --- the log hooks --------------------------------------------------------------------------------------------------


def test_rollout_numbers_join_the_hosts(caplog):
    caplog.set_level(logging.INFO, logger="mem_agent.rollout")
    extra = {"rollout/dynamic_filter/drop_zero_std_0": 3}
    samples = [written(reward=1.0), written(reward=0.0, golds=[False, False]), foreign("failed", reward=0.0)]
    args = SimpleNamespace(mem_agent={}, data_parallel_size=4)
    assert log_rollout(7, args, samples, extra, 12.34) is False
    assert extra["rollout/dynamic_filter/drop_zero_std_0"] == 3 and extra["rollout/memory/reward"] == 0.5
    # Three turns twice and the failure's placeholder are 7 rows; four ranks want 8.
    assert (extra["rollout/memory/rows"], extra["rollout/memory/padding_rows"]) == (8, 1)
    assert caplog.messages == [
        "rollout 7: 3 trajectories | FAILED 1 (unknown 1) | reward 0.500 | mixed groups 100% | turns 3.0 | "
        "memory 10.0 tokens | cache hits 0% | rows 8 | padding 1 | gold in memory 1: 0%, 2: 50%, last: 50% | 12.3 s"
    ]


def test_eval_numbers_are_kept_apart_by_data_set(caplog):
    caplog.set_level(logging.INFO, logger="mem_agent.rollout")
    extra, args = {}, SimpleNamespace(mem_agent={}, eval_reward_key="score")
    data = {"hqa": {"rewards": [1.0], "samples": [written(group_index=None)]},
            "other": {"rewards": [0.0], "samples": [written(group_index=None, reward={"score": 0.0})]},
            "bare": {"rewards": [0.25]}}
    assert log_eval(3, args, data, extra) is False
    told = [(name, value) for name, value in extra.items() if name.endswith("/reward")]
    assert told == [("eval/hqa/memory/reward", 1.0), ("eval/other/memory/reward", 0.0)]
    assert [line.split(":")[0] for line in caplog.messages] == ["eval 3 hqa", "eval 3 other"]
