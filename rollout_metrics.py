"""What a rollout tells about itself: one flat dict of named numbers from its Samples.

Means are over the trajectories that ended by themselves; every failure kind, abort and dropped document token has a
count of its own, so nothing leaves a run unseen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

_MEANS = ("turns", "chunks", "memory_tokens", "prompt_tokens", "response_tokens", "document_tokens")
_SUMS = ("truncated_memories", "empty_updates", "dropped_tokens")


def rollout_metrics(samples: Sequence[Any]) -> dict[str, float]:
    """Metrics of a flat list of Samples written by ``rollout.generate`` and scored."""
    ended = [s for s in samples if s.status.value in ("completed", "truncated")]
    counts = [s.train_metadata["counts"] for s in ended]
    metrics: dict[str, float] = {
        "trajectories": len(samples),
        "aborted": sum(s.status.value == "aborted" for s in samples),
        "failed": sum(s.status.value == "failed" for s in samples),
        "truncated_answers": sum(s.status.value == "truncated" for s in samples),
    }
    failures = Counter(s.train_metadata["failure"] for s in samples if s.status.value == "failed")
    metrics |= {f"failed/{kind}": count for kind, count in sorted(failures.items())}
    if not ended:
        return metrics
    metrics["reward"] = fmean(s.reward for s in ended)
    metrics |= {name: fmean(c[name] for c in counts) for name in _MEANS}
    metrics |= {name: sum(c[name] for c in counts) for name in _SUMS}
    prompt_tokens = sum(c["prompt_tokens"] for c in counts)
    metrics["prefix_cache_hit_rate"] = sum(c["cached_tokens"] for c in counts) / prompt_tokens
    metrics["mixed_groups"] = _mixed_groups(ended)
    return metrics


def _mixed_groups(samples: Sequence[Any]) -> float:
    """Share of groups with different rewards: the ones that carry a gradient."""
    rewards: dict[Any, set[float]] = {}
    for sample in samples:
        rewards.setdefault(sample.group_index, set()).add(sample.reward)
    return fmean(len(values) > 1 for values in rewards.values())
