"""What a rollout tells about itself: one flat dict of named numbers from its Samples.

Invariants:
- every failure kind, abort and dropped document token has a count of its own, so nothing leaves a run unseen; all
  other numbers are over the trajectories that ended by themselves;
- any mix of Samples is legal: a number that no Sample can tell is left out, never made up. Samples of another generate
  hook count as trajectories and with their reward, not with turns;
- numbers by turn are pooled in doubling ranges of the turn's number, counted from 1: ``turn_1``, ``turn_2``,
  ``turn_3-4``, ``turn_5-8`` ... A trajectory of 500 turns gives ten keys of each kind. Within a range every turn
  counts alike (every prompt token for the cache), so a long document has more to say than a short one.

Example, two trajectories; 1 where a gold answer stands in the memory after that round::

    first   0 1 1         gold_in_memory/turn_1    (0 + 0) / 2
    second  0 0           gold_in_memory/turn_2    (1 + 0) / 2
                          gold_in_memory/turn_3-4  1 / 1
                          gold_in_memory/last      (1 + 0) / 2
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from ..rewards.qa_metrics import _CLOSED_ANSWERS, normalise_squad, sub_em
from .filter import reward_value

_MEANS = ("turns", "chunks", "memory_tokens", "prompt_tokens", "response_tokens", "document_tokens")
_SUMS = ("truncated_memories", "empty_updates", "dropped_tokens")
_TURN_COUNTS = frozenset({"cached_tokens"})
"""Counts that are shown in another way; all that an agent counts beyond these three lists is a mean."""
_WRITTEN = frozenset({"counts", "turns", "memories"})
"""Keys of ``train_metadata`` that tell our Samples from those of another generate hook."""

Record = Mapping[str, Any]
"""A turn or a memory as ``train_metadata`` describes it."""


def rollout_metrics(args: Any, samples: Sequence[Any], evaluation: bool = False) -> dict[str, float]:
    """Metrics of a flat list of scored Samples. ``evaluation`` says which of the host's two reward keys applies."""
    ended = [s for s in samples if s.status.value in ("completed", "truncated")]
    metrics: dict[str, float] = {
        "trajectories": len(samples),
        "aborted": sum(s.status.value == "aborted" for s in samples),
        "failed": sum(s.status.value == "failed" for s in samples),
        "truncated_answers": sum(s.status.value == "truncated" for s in samples),
    }
    failures = Counter(_failure(s) for s in samples if s.status.value == "failed")
    metrics |= {f"failed/{kind}": count for kind, count in sorted(failures.items())}
    metrics |= _reward_metrics([(s.group_index, reward_value(args, s, evaluation)) for s in ended])
    written = [s.train_metadata for s in ended if _WRITTEN <= (s.train_metadata or {}).keys()]
    told = [w["accuracy"] for w in written if "accuracy" in w]
    if told:
        metrics["accuracy"] = fmean(told)
    if written:
        metrics |= _count_metrics([w["counts"] for w in written])
        metrics |= _memory_metrics([w["memories"] for w in written])
        metrics |= _cache_metrics([w["turns"] for w in written])
        metrics |= _state_metrics([t["state_rewards"] for w in written for t in w["turns"] if "state_rewards" in t])
    return metrics


def memory_records(
    memories: Sequence[Sequence[int]], decode: Callable[[Sequence[int]], str], golds: Sequence[str]
) -> list[Record]:
    """One record for each memory of a trajectory: ``tokens``, and ``gold``, whether an accepted answer stands in it.

    ``gold`` is None where containment tells nothing: without golds, and for yes, no and noanswer, which texts hold by
    chance.
    """
    nothing = _CLOSED_ANSWERS | {""}
    searched = [gold for gold in golds if normalise_squad(gold, keep_articles=True) not in nothing]
    return [{"tokens": len(m), "gold": sub_em(decode(m), searched) == 1.0 if searched else None} for m in memories]


def turn_range(number: int) -> str:
    """The doubling range that a turn falls in; ``number`` counts from 1."""
    assert number >= 1, number
    last = 1 << (number - 1).bit_length()
    first = last // 2 + 1
    return f"turn_{last}" if first >= last else f"turn_{first}-{last}"


def _failure(sample: Any) -> str:
    return (sample.train_metadata or {}).get("failure") or "unknown"


def _reward_metrics(rewards: Sequence[tuple[Any, float | None]]) -> dict[str, float]:
    """Mean reward, and the share of groups with different rewards: those whose outcomes carry a gradient."""
    scored = [(group, reward) for group, reward in rewards if reward is not None]
    metrics = {"reward": fmean(reward for _, reward in scored)} if scored else {}
    groups: dict[Any, set[float]] = defaultdict(set)
    for group, reward in scored:
        if group is not None:  # evaluation has no groups
            groups[group].add(reward)
    return metrics | ({"mixed_groups": fmean(len(values) > 1 for values in groups.values())} if groups else {})


def _count_metrics(counts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    metrics = {name: fmean(c[name] for c in counts) for name in _MEANS}
    metrics |= {name: sum(c[name] for c in counts) for name in _SUMS}
    others = dict.fromkeys(name for c in counts for name in c if name not in {*_MEANS, *_SUMS, *_TURN_COUNTS})
    metrics |= {name: fmean(c[name] for c in counts if name in c) for name in others}
    cached = sum(c["cached_tokens"] for c in counts)
    return metrics | {"prefix_cache_hit_rate": cached / sum(c["prompt_tokens"] for c in counts)}


def _memory_metrics(trajectories: Sequence[Sequence[Record]]) -> dict[str, float]:
    ranges = _by_range(trajectories)
    metrics = {f"memory_tokens/{name}": fmean(m["tokens"] for m in memories) for name, memories in ranges.items()}
    last = [memories[-1] for memories in trajectories if memories]
    for name, memories in (ranges | {"last": last}).items():
        told = [m["gold"] for m in memories if m["gold"] is not None]
        if told:
            metrics[f"gold_in_memory/{name}"] = fmean(told)
    return metrics


def _cache_metrics(trajectories: Sequence[Sequence[Record]]) -> dict[str, float]:
    """Prompt tokens found in the engines' prefix caches, as a share of the range's prompt tokens."""
    return {
        f"cache_hit/{name}": sum(t["cached_tokens"] for t in turns) / sum(t["prompt_tokens"] for t in turns)
        for name, turns in _by_range(trajectories).items()
    }


def _state_metrics(turns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each state reward over the turns that can earn it."""
    names = sorted({name for rewards in turns for name in rewards})
    return {f"state_reward/{name}": fmean(t[name] for t in turns if name in t) for name in names}


def _by_range(trajectories: Iterable[Sequence[Record]]) -> dict[str, list[Record]]:
    ranges: dict[str, list[Record]] = defaultdict(list)
    for records in trajectories:
        for number, record in enumerate(records, start=1):
            ranges[turn_range(number)].append(record)
    return dict(ranges)
