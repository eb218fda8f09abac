"""What a rollout tells about itself: one flat dict of named numbers from its Samples.

Invariants:
- every failure kind, abort and dropped document token has a count of its own, so nothing leaves a run unseen; all
  other numbers are over the trajectories that ended by themselves;
- any mix of Samples is legal: a number that no Sample can tell is left out, never made up. Samples of another generate
  hook count as trajectories and with their reward, not with turns;
- a reward has a number for each of its named parts, ``reward/<part>``, and ``accuracy`` for what the task alone gave;
- numbers by turn are pooled in doubling ranges of the turn's number, counted from 1: ``turn_1``, ``turn_2``,
  ``turn_3-4``, ``turn_5-8`` ... A trajectory of 500 turns gives ten keys of each kind. Within a range every turn
  counts alike, so a long document has more to say than a short one.

Example, two trajectories; 1 where a gold answer stands in the memory after that round::

    first   0 1 1         gold_in_memory/turn_1    (0 + 0) / 2
    second  0 0           gold_in_memory/turn_2    (1 + 0) / 2
                          gold_in_memory/turn_3-4  1 / 1
                          gold_in_memory/last      (1 + 0) / 2
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum
from statistics import fmean
from typing import Any

from ..agents.records import Outcome
from ..rewards.qa_metrics import CLOSED_ANSWERS, normalise_squad, sub_em
from ..rewards.statistics import expected_best, half_width, pass_at, pass_sizes
from .host import HostArgs
from .sample import MemoryRecord, Record, ended, has_failed, lost, reward_of

_SUMS = ("truncated_memories", "empty_updates", "dropped_tokens")
"""All else that an agent counts is a mean."""


def rollout_metrics(samples: Sequence[Any], reward_key: str = "", *, scored: bool = True) -> dict[str, float]:
    """Metrics of a flat list of Samples.

    Args:
        reward_key: the entry that counts where rewards are dicts.
        scored: rewards say something; they do not where replies were given (LOSS=sft).
    """
    finished = [s for s in samples if ended(s)]
    endings = Counter(s.status.value for s in samples)
    failures = Counter(failure_of(s) for s in samples if has_failed(s))
    metrics: dict[str, float] = {
        "trajectories": len(samples), "aborted": endings[Outcome.ABORTED], "failed": endings[Outcome.FAILED],
        "truncated_answers": endings[Outcome.TRUNCATED],
        **{f"failed/{kind}": count for kind, count in sorted(failures.items())},
    }
    if scored:
        metrics |= _reward_metrics([(s.group_index, reward_of(s, reward_key)) for s in finished])
    records = [record for s in finished if (record := Record.of(s)) is not None]
    states = [turn.state_rewards or {} for record in records for turn in record.turns]
    return (
        metrics | _part_metrics(records) | _count_metrics([r.counts for r in records])
        | _memory_metrics([r.memories for r in records])
        | {f"state_reward/{name}": fmean(values) for name, values in sorted(_by_name(states).items())})


def best_of(samples: Sequence[Any], host: HostArgs) -> dict[str, float]:
    """Of an evaluation with k answers to each question, which hosts hand over one after another.

    ``best@k`` of the rewards, and ``pass@2``, ``pass@4`` ... where every answer was worth 0 or 1 to its task.
    """
    k = host.eval_samples
    if k == 1 or not samples or len(samples) % k:
        return {}
    rewards = [reward_of(s, host.eval_reward_key) or 0.0 for s in samples]  # failed: wrong, as for hosts
    right = [0.0 if lost(s) else (record := Record.of(s)) and record.accuracy for s in samples]
    starts = range(0, len(samples), k)
    metrics = {f"best@{k}": fmean(expected_best(rewards[i : i + k]) for i in starts)}
    if set(right) <= {0.0, 1.0}:
        counted = [right[i : i + k].count(1.0) for i in starts]
        metrics |= {f"pass@{size}": fmean(pass_at(size, k, n) for n in counted) for size in pass_sizes(k)[1:]}
    return metrics


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
    last = 1 << (number - 1).bit_length()
    first = last // 2 + 1
    return f"turn_{last}" if first >= last else f"turn_{first}-{last}"


def _reward_metrics(rewards: Sequence[tuple[Any, float | None]]) -> dict[str, float]:
    """Mean reward, half of its 95% interval over groups, and the share of groups with different rewards: those whose
    outcomes carry a gradient."""
    scored = [(group, reward) for group, reward in rewards if reward is not None]
    metrics = {"reward": fmean(reward for _, reward in scored)} if scored else {}
    groups = _by_name([{group: reward} for group, reward in scored if group is not None])  # evaluation has none
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
    parts = _by_name([record.reward_parts for record in scored])
    return {"accuracy": fmean(record.accuracy or 0.0 for record in scored),
            **{f"reward/{name}": fsum(values) / len(scored) for name, values in parts.items()}}


def _count_metrics(counts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    counted = _by_name(counts)
    cached = counted.pop("cached_tokens", None)
    metrics = {name: sum(values) if name in _SUMS else fmean(values) for name, values in counted.items()}
    if cached:
        prompts = sum(c["prompt_tokens"] for c in counts if "cached_tokens" in c)
        metrics["prefix_cache_hit_rate"] = sum(cached) / prompts
    return metrics


def _memory_metrics(trajectories: Sequence[Sequence[MemoryRecord]]) -> dict[str, float]:
    ranges: dict[str, list[MemoryRecord]] = defaultdict(list)
    for memories in trajectories:
        for number, memory in enumerate(memories, start=1):
            ranges[turn_range(number)].append(memory)
    metrics = {f"memory_tokens/{name}": fmean(m.tokens for m in memories) for name, memories in ranges.items()}
    last = [memories[-1] for memories in trajectories if memories]
    for name, memories in (ranges | {"last": last}).items():
        if known := [m.gold for m in memories if m.gold is not None]:
            metrics[f"gold_in_memory/{name}"] = fmean(known)
    return metrics


def _by_name(told: Iterable[Mapping[Any, float]]) -> dict[Any, list[float]]:
    """The values of each name, of those who tell it."""
    values: dict[Any, list[float]] = defaultdict(list)
    for numbers in told:
        for name, value in numbers.items():
            values[name].append(value)
    return dict(values)


# --- a line for people ----------------------------------------------------------------------------------------------

_SHOWN = (
    ("reward", "reward {:.3f}"),
    ("mixed_groups", "mixed groups {:.0%}"),
    ("accuracy", "accuracy {:.3f}"),
    ("turns", "turns {:.1f}"),
    ("chunks_read", "chunks read {:.1f}"),
    ("memory_tokens", "memory {:.1f} tokens"),
    ("recalls", "recalls {:.1f}"),
    ("prefix_cache_hit_rate", "cache hits {:.0%}"),
    ("rows", "rows {:.0f}"),
    ("padding_rows", "padding {:.0f}"),
)


def metrics_line(metrics: Mapping[str, float]) -> str:
    """The numbers that people look at first; what is absent is left out."""
    endings = [f"{metrics['trajectories']} trajectories"]
    for name in ("truncated_answers", "aborted"):
        endings += [f"{metrics[name]} {name.replace('_', ' ')}"] if metrics[name] else []
    if metrics["failed"]:
        kinds = ", ".join(f"{kind} {count}" for kind, count in _under(metrics, "failed/").items())
        endings.append(f"FAILED {metrics['failed']} ({kinds})")
    parts = [", ".join(endings)]
    parts += [text.format(metrics[name]) for name, text in _SHOWN if name in metrics]
    if golds := _under(metrics, "gold_in_memory/"):
        each = (f"{name.removeprefix('turn_')}: {value:.0%}" for name, value in golds.items())
        parts.append(f"gold in memory {', '.join(each)}")
    return " | ".join(parts)


def _under(metrics: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}
