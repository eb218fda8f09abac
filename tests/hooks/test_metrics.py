"""Numbers of a rollout: by hand for two documents, by turn in doubling ranges, and for every mix of Samples."""

import pytest

from mem_agent.hooks.metrics import find_golds, rollout_metrics
from mem_agent.hooks.sample import MemoryRecord
from mem_agent.tests.helpers.samples import trajectory, turn


def written(golds=(False, True), tokens=10, cached=0, group=0, reward=1.0, status="completed", **fields):
    """A memory for each of ``golds``, prompts of 100 tokens."""
    known = cached is not None
    turns = [turn(5, prompt=100, cached_tokens=cached * i if known else None) for i in range(len(golds) + 1)]
    counts = {"turns": len(turns), "chunks": len(golds), "memory_tokens": tokens, "document_tokens": 8,
              "prompt_tokens": 100 * len(turns),
              "response_tokens": 5 * len(turns), "truncated_memories": 1, "empty_updates": 2, "dropped_tokens": 3}
    counts |= {"cached_tokens": sum(t.cached_tokens for t in turns)} if known else {}
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
        "chunks": 3.0,
        "memory_tokens": 15.0,
        "prompt_tokens": 400.0, "response_tokens": 20.0, "document_tokens": 8.0,
        "truncated_memories": 2, "empty_updates": 4, "dropped_tokens": 6,
        "prefix_cache_hit_rate": 220 / 800,  # 0 + 40 + 80 and 0 + 10 + 20 + 30 + 40, of 3 + 5 prompts of 100
        "memory_tokens/turn_1": 15.0, "memory_tokens/turn_2": 15.0, "memory_tokens/turn_3-4": 20.0,
        "gold_in_memory/turn_1": 0.0,
        "gold_in_memory/turn_2": 1 / 2,  # the short one has it, the long one not yet
        "gold_in_memory/turn_3-4": 1.0,  # the long one alone, twice
        "gold_in_memory/last": 1.0,
    }


@pytest.mark.parametrize(
    "golds,text,found",
    [
        (["Mumbai", "Bombay"], "lives in Bombay now", True),
        (["Mumbai"], "Navi Mumbaikar", False),
        (["The Red One"], "it was red one", True),  # articles and case do not matter
        (["red"], "", False),
        (["No."], "no idea", None),
        (["yes", "red"], "yes", False),  # only red is looked for
        (["A"], "plan a", True),
    ],
)
def test_a_gold_is_found_where_containment_tells_something(golds, text, found):
    assert find_golds([[1, 2, 3]], lambda ids: text, golds) == [MemoryRecord(3, found)]


def test_only_trajectories_that_ended_by_themselves_are_in_the_means():
    samples = [written([True], reward=1.0), written([False], reward=0.0, status="truncated"),
               written([False] * 9, reward=0.0, status="failed", failure="timeout"),
               written([False] * 9, reward=0.0, status="aborted")]
    metrics = rollout_metrics(samples)
    assert (metrics["trajectories"], metrics["failed/timeout"], metrics["aborted"]) == (4, 1, 1)
    assert metrics["reward"] == 0.5 and metrics["turns"] == 2.0 and metrics["gold_in_memory/last"] == 0.5


def test_accuracy_and_what_an_agent_counts_are_means_of_those_who_tell():
    def scored(reward, accuracy, skipped, **parts):
        done = written(reward=reward, record={"accuracy": accuracy, "reward_parts": parts})
        done.train_metadata["counts"] |= {"skipped": skipped, "rounds": 2}
        return done

    plain = written(reward=1.0)
    quick, slow = scored(0.9, 1.0, 3, answer=1.0, turn_cost=-0.1), scored(0.0, 0.0, 0, answer=0.0)
    metrics = rollout_metrics([plain, quick, slow])
    assert (metrics["accuracy"], metrics["skipped"], metrics["rounds"]) == (0.5, 1.5, 2.0)
    assert (metrics["reward/answer"], metrics["reward/turn_cost"]) == (0.5, -0.05)  # no cost is a cost of 0
    assert not {"accuracy", "skipped"} & rollout_metrics([plain]).keys()
