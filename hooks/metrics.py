"""What a rollout tells about itself: one flat dict of named numbers from its Samples.

Invariants:
- every failure kind, abort and dropped document token has a count of its own, so nothing leaves a run unseen; all
  other numbers are over the trajectories that ended by themselves;
- any mix of Samples is legal: a number that no Sample can tell is left out, never made up. Samples of another generate
  hook count as trajectories and with their reward, not with turns;
- a reward has a number for each of its named parts, ``reward/<part>``, and ``accuracy`` for what the task alone gave;
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
from typing import Any, TypeVar

from ..agents.records import Outcome
from ..rewards.best_of import expected_best, pass_at, pass_sizes
from ..rewards.mean_interval import half_width
from ..rewards.qa_metrics import CLOSED_ANSWERS, normalise_squad, sub_em
from .host import HostArgs
from .record import MemoryRecord, Record, TurnRecord
from .sample import ended, lost, reward_of

T = TypeVar("T")
_SUMS = ("truncated_memories", "empty_updates", "dropped_tokens")
_TURN_COUNTS = frozenset({"cached_tokens"})
"""Counts that are shown in another way; all that an agent counts beyond these and the sums is a mean."""


def rollout_metrics(samples: Sequence[Any], reward_key: str = "", *, scored: bool = True) -> dict[str, float]:
    """Metrics of a flat list of Samples.

    Args:
        reward_key: the entry that counts where rewards are dicts.
        scored: rewards say something; they do not where replies were given (LOSS=sft).
    """
    finished = [s for s in samples if ended(s)]
    metrics: dict[str, float] = {
        "trajectories": len(samples),
        "aborted": sum(s.status.value == Outcome.ABORTED for s in samples),
        "failed": sum(s.status.value == Outcome.FAILED for s in samples),
        "truncated_answers": sum(s.status.value == Outcome.TRUNCATED for s in samples),
    }
    failures = Counter(failure_of(s) for s in samples if s.status.value == Outcome.FAILED)
    metrics |= {f"failed/{kind}": count for kind, count in sorted(failures.items())}
    if scored:
        metrics |= _reward_metrics([(s.group_index, reward_of(s, reward_key)) for s in finished])
    records = [record for s in finished if (record := Record.of(s)) is not None]
    metrics |= _part_metrics(records)
    if records:
        metrics |= _count_metrics([r.counts for r in records])
        metrics |= _memory_metrics([r.memories for r in records])
        metrics |= _cache_metrics([r.turns for r in records])
        metrics |= _state_metrics([t.state_rewards for r in records for t in r.turns if t.state_rewards is not None])
    return metrics


def best_of(samples: Sequence[Any], host: HostArgs) -> dict[str, float]:
    """Of an evaluation with k answers to each question, which hosts hand over one after another.

    ``best@k`` of the rewards, and ``pass@2``, ``pass@4`` ... where every answer was worth 0 or 1 to its task.
    """
    k = host.eval_samples
    if k == 1 or not samples or len(samples) % k:
        return {}
    rewards = [reward_of(s, host.eval_reward_key) or 0.0 for s in samples]  # failed: wrong, as for hosts
    starts, right = range(0, len(samples), k), [_right(s) for s in samples]
    metrics = {f"best@{k}": fmean(expected_best(rewards[i : i + k]) for i in starts)}
    if set(right) <= {0.0, 1.0}:
        counted = [int(sum(right[i : i + k])) for i in starts]
        metrics |= {f"pass@{size}": fmean(pass_at(size, k, n) for n in counted) for size in pass_sizes(k)[1:]}
    return metrics


def _right(sample: Any) -> float:
    """What the answer was worth to its task; failed: nothing. -1 where nobody says."""
    record = Record.of(sample)
    if lost(sample):
        return 0.0
    return record.accuracy if record is not None and record.accuracy is not None else -1.0


def find_golds(
    memories: Sequence[Sequence[int]], decode: Callable[[Sequence[int]], str], golds: Sequence[str], *,
    keep: bool = False,
) -> list[MemoryRecord]:
    """One record for each memory of a trajectory: its tokens, whether an accepted answer stands in it, and where it is
    to be kept its text.

    ``gold`` is None where containment tells nothing: without golds, and for yes, no and noanswer, which texts hold by
    chance.
    """
    nothing = CLOSED_ANSWERS | {""}
    searched = [gold for gold in golds if normalise_squad(gold, keep_articles=True) not in nothing]
    texts = [decode(memory) if searched or keep else "" for memory in memories]
    return [
        MemoryRecord(len(memory), sub_em(text, searched) == 1.0 if searched else None, text if keep else "")
        for memory, text in zip(memories, texts, strict=True)
    ]


def failure_of(sample: Any) -> str:
    """Why a failed trajectory failed."""
    record = Record.of(sample)
    return record.failure.value if record and record.failure else "unknown"


def turn_range(number: int) -> str:
    """The doubling range that a turn falls in; ``number`` counts from 1."""
    assert number >= 1, number
    last = 1 << (number - 1).bit_length()
    first = last // 2 + 1
    return f"turn_{last}" if first >= last else f"turn_{first}-{last}"


def _reward_metrics(rewards: Sequence[tuple[Any, float | None]]) -> dict[str, float]:
    """Mean reward, half of its 95% interval over groups, and the share of groups with different rewards: those whose
    outcomes carry a gradient."""
    scored = [(group, reward) for group, reward in rewards if reward is not None]
    metrics = {"reward": fmean(reward for _, reward in scored)} if scored else {}
    groups: dict[Any, list[float]] = defaultdict(list)
    for group, reward in scored:
        if group is not None:  # evaluation has no groups
            groups[group].append(reward)
    if groups:
        metrics["mixed_groups"] = fmean(len(set(values)) > 1 for values in groups.values())
        around = half_width(list(groups.values()))
        metrics |= {} if around is None else {"reward_interval": around}
    return metrics


def _part_metrics(records: Sequence[Record]) -> dict[str, float]:
    """Means of what the task alone gave, and of each named part; a part that a trajectory lacks is 0 there."""
    scored = [record for record in records if record.accuracy is not None]
    if not scored:
        return {}
    names = dict.fromkeys(name for record in scored for name in record.reward_parts)
    parts = {f"reward/{name}": fmean(r.reward_parts.get(name, 0.0) for r in scored) for name in names}
    return {"accuracy": fmean(r.accuracy for r in scored if r.accuracy is not None), **parts}


def _count_metrics(counts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for c in counts for name in c)
    counted = {name: [c[name] for c in counts if name in c] for name in names}
    metrics = {
        name: sum(values) if name in _SUMS else fmean(values)
        for name, values in counted.items() if name not in _TURN_COUNTS
    }
    told = [c for c in counts if "cached_tokens" in c]
    if not told:
        return metrics
    cached = sum(c["cached_tokens"] for c in told)
    return metrics | {"prefix_cache_hit_rate": cached / sum(c["prompt_tokens"] for c in told)}


def _memory_metrics(trajectories: Sequence[Sequence[MemoryRecord]]) -> dict[str, float]:
    ranges = _by_range(trajectories)
    metrics = {f"memory_tokens/{name}": fmean(m.tokens for m in memories) for name, memories in ranges.items()}
    last = [memories[-1] for memories in trajectories if memories]
    for name, memories in (ranges | {"last": last}).items():
        known = [m.gold for m in memories if m.gold is not None]
        if known:
            metrics[f"gold_in_memory/{name}"] = fmean(known)
    return metrics


def _cache_metrics(trajectories: Sequence[Sequence[TurnRecord]]) -> dict[str, float]:
    """Prompt tokens found in the engines' prefix caches, as a share of the range's; nothing where no engine says."""
    metrics = {}
    for name, turns in _by_range(trajectories).items():
        told = [(t.cached_tokens, t.prompt_tokens) for t in turns if t.cached_tokens is not None]
        if told:
            metrics[f"cache_hit/{name}"] = sum(cached for cached, _ in told) / sum(prompt for _, prompt in told)
    return metrics


def _state_metrics(turns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each state reward over the turns that can earn it."""
    names = sorted({name for rewards in turns for name in rewards})
    return {f"state_reward/{name}": fmean(t[name] for t in turns if name in t) for name in names}


def _by_range(trajectories: Iterable[Sequence[T]]) -> dict[str, list[T]]:
    ranges: dict[str, list[T]] = defaultdict(list)
    for records in trajectories:
        for number, record in enumerate(records, start=1):
            ranges[turn_range(number)].append(record)
    return dict(ranges)


# --- a line for people ----------------------------------------------------------------------------------------------

_SHOWN = (
    ("reward", "reward {:.3f}"),
    ("mixed_groups", "mixed groups {:.0%}"),
    ("accuracy", "accuracy {:.3f}"),
    ("intrinsic/share", "intrinsic {:.0%}"),
    ("turns", "turns {:.1f}"),
    ("chunks_read", "chunks read {:.1f}"),
    ("memory_tokens", "memory {:.1f} tokens"),
    ("recalls", "recalls {:.1f}"),
    ("prefix_cache_hit_rate", "cache hits {:.0%}"),
    ("rows", "rows {:.0f}"),
    ("padding_rows", "padding {:.0f}"),
    ("dropped_groups", "groups dropped {:.0f}"),
)


def metrics_line(metrics: Mapping[str, float]) -> str:
    """The numbers that people look at first; what is absent is left out."""
    parts = [_endings(metrics)]
    parts += [text.format(metrics[name]) for name, text in _SHOWN if name in metrics]
    if "gold_in_memory/last" in metrics:
        parts.append("gold in memory " + _by_turn(metrics, "gold_in_memory/"))
    return " | ".join(parts)


def _endings(metrics: Mapping[str, float]) -> str:
    parts = [f"{metrics['trajectories']} trajectories"]
    counted = ("truncated_answers", "aborted")
    parts += [f"{metrics[name]} {name.replace('_', ' ')}" for name in counted if metrics[name]]
    if metrics["failed"]:
        kinds = {name.removeprefix("failed/"): n for name, n in metrics.items() if name.startswith("failed/")}
        parts.append(f"FAILED {metrics['failed']} ({', '.join(f'{kind} {n}' for kind, n in kinds.items())})")
    return ", ".join(parts)


def _by_turn(metrics: Mapping[str, float], prefix: str) -> str:
    """``1: 0%, 2: 25%, 3-4: 60%, last: 60%``."""
    values = {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}
    return ", ".join(f"{name.removeprefix('turn_')}: {value:.0%}" for name, value in values.items())
