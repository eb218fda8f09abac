"""The log hooks: what the pack knows about a rollout, into the host's own metrics and one line of its log.

    --custom-rollout-log-function-path mem_agent.hooks.log.log_rollout
    --custom-eval-rollout-log-function-path mem_agent.hooks.log.log_eval

Invariants:
- both return False, so the host logs what it always logs;
- numbers of ``rollout_metrics`` are written into the dict that the host is about to log, as ``rollout/memory/<name>``
  and ``eval/<dataset>/memory/<name>``. Hosts give None in place of that dict where they replay saved rollouts, and in
  the evaluation of their own rollout functions; the line is then all there is;
- no mix of Samples raises (see ``rollout_metrics``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ..custom_convert import row_counts
from .metrics import rollout_metrics

logger = logging.getLogger(__name__)


def log_rollout(
    rollout_id: int, args: Any, samples: list[Any], rollout_extra_metrics: dict[str, Any] | None, rollout_time: float
) -> bool:
    """Log a training rollout; ``rows`` and ``padding_rows`` are what ``custom_convert`` makes of it."""
    metrics = rollout_metrics(args, samples) | row_counts(args, samples)
    _merge(rollout_extra_metrics, "rollout/memory", metrics)
    logger.info("rollout %s: %s | %.1f s", rollout_id, readable(metrics), rollout_time)
    return False


def log_eval(rollout_id: int, args: Any, data: dict[str, Any], extra_metrics: dict[str, Any] | None) -> bool:
    """Log an evaluation, one line for each data set."""
    for dataset, results in data.items():
        # ``samples`` is optional in the hosts' contract: an own evaluation function may give rewards alone.
        metrics = rollout_metrics(args, results.get("samples") or [], evaluation=True)
        if metrics["trajectories"]:
            _merge(extra_metrics, f"eval/{dataset}/memory", metrics)
            logger.info("eval %s %s: %s", rollout_id, dataset, readable(metrics))
    return False


def _merge(host_metrics: dict[str, Any] | None, prefix: str, metrics: Mapping[str, float]) -> None:
    if host_metrics is not None:
        host_metrics.update({f"{prefix}/{name}": value for name, value in metrics.items()})


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


def readable(metrics: Mapping[str, float]) -> str:
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
