"""What a rollout tells about itself: one flat dict of named numbers from its Samples.

Invariants:
- every failure kind, abort and dropped document token has a count of its own, so nothing is lost silently; all
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from ..agents.records import Outcome
from ..rewards.qa_metrics import CLOSED_ANSWERS, normalise_squad, sub_em
from .sample import MemoryRecord, Record, ended, reward_of

_SUMS = ("truncated_memories", "empty_updates", "dropped_tokens")
"""All else that an agent counts is a mean."""


def rollout_metrics(samples: Sequence[Any], reward_key: str = "", *, scored: bool = True) -> dict[str, float]:
    """Metrics of a flat list of Samples.

    Args:
        reward_key: the entry that counts where rewards are dicts.
        scored: whether rewards mean anything; they do not under LOSS=sft.

    ``failed/<kind>`` counts failed trajectories, those of another generate hook as ``unknown``; ``mixed_groups`` is
    the share of groups with different rewards, those whose outcomes carry a gradient. A reward part that a trajectory
    lacks counts as 0.
    """
    finished = [s for s in samples if ended(s)]
    endings = Counter(s.status.value for s in samples)
    lost = [Record.of(s) for s in samples if s.status.value == Outcome.FAILED]
    failures = Counter(str(record.failure) if record and record.failure else "unknown" for record in lost)
    metrics: dict[str, float] = {
        "trajectories": len(samples), "aborted": endings[Outcome.ABORTED], "failed": failures.total(),
        "truncated_answers": endings[Outcome.TRUNCATED],
        **{f"failed/{kind}": count for kind, count in sorted(failures.items())},
    }
    rewards = [(s.group_index, reward_of(s, reward_key)) for s in finished] if scored else []
    groups = _by_name((group, reward) for group, reward in rewards if group is not None)  # evaluation has none
    if groups:
        metrics["mixed_groups"] = fmean(len(set(values)) > 1 for values in groups.values())
    records = [record for s in finished if (record := Record.of(s)) is not None]
    told = _by_name([*(("reward", reward) for _, reward in rewards), *_told(records)])
    if cached := told.pop("cached_tokens", None):
        prompts = sum(record.counts["prompt_tokens"] for record in records if "cached_tokens" in record.counts)
        metrics["prefix_cache_hit_rate"] = sum(cached) / prompts
    return metrics | {name: sum(values) if name in _SUMS else fmean(values) for name, values in told.items()}


def _told(records: Sequence[Record]) -> Iterator[tuple[str, float | None]]:
    """Each number that a trajectory, a turn or a memory tells, by the name of its mean."""
    parts = dict.fromkeys(name for record in records for name in record.reward_parts)
    for record in records:
        yield "accuracy", record.accuracy
        if record.accuracy is not None:
            yield from ((f"reward/{name}", record.reward_parts.get(name, 0.0)) for name in parts)
        yield from record.counts.items()
        for number, memory in enumerate(record.memories, start=1):
            yield f"memory_tokens/{turn_range(number)}", memory.tokens
            yield f"gold_in_memory/{turn_range(number)}", memory.gold
        for turn in record.turns:
            yield from ((f"state_reward/{name}", value) for name, value in (turn.state_rewards or {}).items())
    yield from (("gold_in_memory/last", record.memories[-1].gold) for record in records if record.memories)


def _by_name(told: Iterable[tuple[Any, float | None]]) -> dict[Any, list[float]]:
    """The values of each name, of those who tell it."""
    values: dict[Any, list[float]] = defaultdict(list)
    for name, value in told:
        if value is not None:
            values[name].append(value)
    return dict(values)


def find_golds(
    memories: Sequence[Sequence[int]], decode: Callable[[Sequence[int]], str], golds: Sequence[str], *,
    keep: bool = False,
) -> list[MemoryRecord]:
    """One record for each memory of a trajectory: its tokens, whether an accepted answer stands in it, and its text
    if ``keep``.

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


def turn_range(number: int) -> str:
    """The doubling range that a turn falls in; ``number`` counts from 1."""
    last = 1 << (number - 1).bit_length()
    first = last // 2 + 1
    return f"turn_{last}" if first >= last else f"turn_{first}-{last}"


# --- a line for people ----------------------------------------------------------------------------------------------

_SHOWN = {
    "reward": "reward {:.3f}", "mixed_groups": "mixed groups {:.0%}", "accuracy": "accuracy {:.3f}",
    "turns": "turns {:.1f}", "chunks_read": "chunks read {:.1f}", "memory_tokens": "memory {:.1f} tokens",
    "recalls": "recalls {:.1f}", "prefix_cache_hit_rate": "cache hits {:.0%}", "rows": "rows {:.0f}",
    "padding_rows": "padding {:.0f}", "tokens_per_second": "{:,.0f} tokens/s", "loss": "loss {:+.5f}",
    "kl": "kl {:.4f}", "grad_norm": "grad {:.3f}", "rollout_log_prob_gap": "engine/trainer gap {:.1e}",
}


def shown(metrics: Mapping[str, float]) -> list[str]:
    """The numbers that people look at first, in words, without those that are absent."""
    return [text.format(metrics[name]) for name, text in _SHOWN.items() if metrics.get(name) is not None]


def metrics_line(metrics: Mapping[str, float]) -> str:
    """The numbers that people look at first, and what failed, by its reason."""
    parts = [f"{metrics['trajectories']} trajectories"]
    parts += [f"{metrics[name]} {name.replace('_', ' ')}" for name in ("truncated_answers", "aborted")
              if metrics[name]]
    if failed := _under(metrics, "failed/", "{} {}"):
        parts.append(f"FAILED {metrics['failed']} ({failed})")
    parts += shown(metrics)
    if golds := _under(metrics, "gold_in_memory/", "{}: {:.0%}"):
        parts.append(f"gold in memory {golds.replace('turn_', '')}")
    return " | ".join(parts)


def _under(metrics: Mapping[str, float], prefix: str, text: str) -> str:
    return ", ".join(text.format(name.removeprefix(prefix), value) for name, value in metrics.items()
                     if name.startswith(prefix))
