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
from math import comb, sqrt
from statistics import fmean
from typing import Any

from ..agents.records import Outcome
from ..rewards.qa_metrics import CLOSED_ANSWERS, normalise_squad, sub_em
from .host import HostArgs
from .sample import MemoryRecord, Record, ended, has_failed, lost, reward_of

_SUMS = ("truncated_memories", "empty_updates", "dropped_tokens")
"""All else that an agent counts is a mean."""


def rollout_metrics(samples: Sequence[Any], reward_key: str = "", *, scored: bool = True) -> dict[str, float]:
    """Metrics of a flat list of Samples.

    Args:
        reward_key: the entry that counts where rewards are dicts.
        scored: whether rewards mean anything; they do not under LOSS=sft.

    ``mixed_groups`` is the share of groups with different rewards, those whose outcomes carry a gradient;
    ``reward_interval`` half of the mean reward's 95% interval over groups. A reward part that
    a trajectory lacks counts as 0.
    """
    finished = [s for s in samples if ended(s)]
    endings = Counter(s.status.value for s in samples)
    failures = Counter(failure_of(s) for s in samples if has_failed(s))
    metrics: dict[str, float] = {
        "trajectories": len(samples), "aborted": endings[Outcome.ABORTED], "failed": endings[Outcome.FAILED],
        "truncated_answers": endings[Outcome.TRUNCATED],
        **{f"failed/{kind}": count for kind, count in sorted(failures.items())},
    }
    rewards = [(s.group_index, reward_of(s, reward_key)) for s in finished] if scored else []
    groups = _by_name((group, reward) for group, reward in rewards if group is not None)  # evaluation has none
    if groups:
        metrics["mixed_groups"] = fmean(len(set(values)) > 1 for values in groups.values())
        around = half_width(list(groups.values()))
        metrics |= {} if around is None else {"reward_interval": around}
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


def best_of(samples: Sequence[Any], host: HostArgs) -> dict[str, float]:
    """Metrics of an evaluation with k answers to each question; hosts give a question's answers one after another.

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


def failure_of(sample: Any) -> str:
    """Why a failed trajectory failed."""
    record = Record.of(sample)
    return record.failure.value if record and record.failure else "unknown"


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
    """The numbers that people look at first, in words, without those that are absent or say nothing more: an accuracy
    that is the reward, no padding."""
    silent = {"accuracy": metrics.get("accuracy") == metrics.get("reward"),
              "padding_rows": not metrics.get("padding_rows")}
    return [text.format(metrics[name]) for name, text in _SHOWN.items()
            if metrics.get(name) is not None and not silent.get(name)]


def metrics_line(metrics: Mapping[str, float]) -> str:
    """The numbers that people look at first; what is absent is left out."""
    endings = [f"{metrics['trajectories']} trajectories"]
    endings += [f"{metrics[name]} {name.replace('_', ' ')}" for name in ("truncated_answers", "aborted")
                if metrics[name]]
    if metrics["failed"]:
        kinds = ", ".join(f"{kind} {count}" for kind, count in _under(metrics, "failed/").items())
        endings.append(f"FAILED {metrics['failed']} ({kinds})")
    parts = [", ".join(endings), *shown(metrics)]
    if golds := _under(metrics, "gold_in_memory/"):
        each = (f"{name.removeprefix('turn_')}: {value:.0%}" for name, value in golds.items())
        parts.append(f"gold in memory {', '.join(each)}")
    return " | ".join(parts)


def _under(metrics: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}


# --- statistics of rewards -------------------------------------------------------------------------------------------

_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)
"""Student's t at 97.5%, by degrees of freedom from 1."""
_T_BEYOND = 2.0
"""Above 30 degrees it is between 2.04 and 1.96."""


def half_width(groups: Sequence[Sequence[float]]) -> float | None:
    """Half of the 95% interval of the mean over all rewards in ``groups``, none of which is empty; None with fewer
    than two groups.

    The unit is the group: trajectories of one document are no independent evidence. With G groups, N rewards, mean m::

        half width = t(G - 1) * sqrt(G / (G - 1) * sum over groups of (sum of (reward - m)) ** 2) / N

    For groups of one size that is Student's interval of the group means. Two groups of two, rewards 0 1 and 1 1:
    m = 0.75, the groups are -0.5 and 0.5 from it, sqrt(2 * 0.5) / 4 = 0.25, times t(1) = 12.706.
    """
    if len(groups) < 2:
        return None
    count = sum(map(len, groups))
    mean = sum(map(sum, groups)) / count
    spread = sum(sum(reward - mean for reward in group) ** 2 for group in groups)
    degrees = len(groups) - 1
    t = _T[degrees - 1] if degrees <= len(_T) else _T_BEYOND
    return t * sqrt(len(groups) / degrees * spread) / count


def expected_best(values: Sequence[float]) -> float:
    """The mean of the best of k draws, with replacement, from a question's k answers.

    What verl's ``process_validation_metrics`` estimates with 1,000 draws, as an expectation: the i-th smallest is the
    best with probability (i/k)^k - ((i-1)/k)^k. Example: 1 of 4 answers is right: 1 - (3/4)^4 = 0.684.
    """
    k = len(values)
    return sum(value * ((i / k) ** k - ((i - 1) / k) ** k) for i, value in enumerate(sorted(values), 1))


def pass_at(k: int, answers: int, right: int) -> float:
    """The probability that of k answers to a question, drawn without replacement from those that it has, one is right.

    1 - C(n - c, k) / C(n, k), of n answers c being right (Chen et al. 2021, arXiv 2107.03374, equation 1): the
    unbiased estimate of the chance that one of k fresh answers is right. Example: 1 of 4 is right: pass@1 1/4, pass@2
    1 - 3/6 = 1/2, pass@4 1.
    """
    return 1 - comb(answers - right, k) / comb(answers, k)


def pass_sizes(answers: int) -> list[int]:
    """The k of which pass@k is told where a question has so many answers: powers of two, and all of them."""
    powers = [2**i for i in range(answers.bit_length()) if 2**i <= answers]
    return list(dict.fromkeys([*powers, answers])) if answers else []
