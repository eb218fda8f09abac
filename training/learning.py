"""What the trainer does with one rollout: log-probs where they are needed, then its optimizer steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..config import Config
from .group_rollout import RolloutError
from .journal import Rollout
from .packing import trie_tokens
from .rows import TrainRow, optimizer_steps, rows_from_train_data


def learn(config: Config, trainer: Any, rollout: Rollout) -> dict[str, float]:
    """Log-probs under the old and the reference policy, then the steps of the rollout; metrics are means.

    The first step needs no old log-probs: its own are those. A rollout of two steps scores the rows of the second.
    LOSS=sft needs none at all.
    """
    rows = rows_from_train_data(rollout.train_data)
    steps = optimizer_steps(rows, config.step_trajectories)
    began = time.monotonic()
    if config.supervised:
        scored = began
        results = [trainer.sft_step(step) for step in steps]
    else:
        scored, results = _policy_steps(config, trainer, steps)
    updated = time.monotonic()
    metrics = {name: sum(r[name] for r in results) / len(results) for name in results[0]}
    if not all(math.isfinite(metrics[name]) for name in ("loss", "grad_norm")):
        raise RolloutError(
            f"loss {metrics['loss']} and gradient norm {metrics['grad_norm']} are not finite; lower LR and continue "
            f"from the newest checkpoint in {config.save_path}"
        )
    return metrics | {
        "rows": len(rows),
        "row_tokens": sum(len(row.tokens) for row in rows),
        "trie_tokens": trie_tokens([row.inputs for row in rows]),
        "seconds/log_probs": scored - began,
        "seconds/update": updated - scored,
    }


def _policy_steps(
    config: Config, trainer: Any, steps: Sequence[list[TrainRow]]
) -> tuple[float, list[dict[str, float]]]:
    """(when the log-probs were there, the metrics of each step)."""
    reference: Sequence[Any] = [None] * len(steps)
    if config.compares_with_reference:
        reference = scores(trainer.reference_log_probs, steps)
    old = [None, *scores(trainer.log_probs, steps[1:])]
    scored = time.monotonic()
    return scored, [
        trainer.train_step(step, sampled, ref) for step, sampled, ref in zip(steps, old, reference, strict=True)
    ]


def scores(
    log_probs: Callable[[list[TrainRow]], list[list[float]]], steps: Sequence[Sequence[TrainRow]]
) -> list[list[list[float]]]:
    """For each step the log-probs of its rows; zeros for rows that are masked as a whole, which nothing counts."""
    found = iter(log_probs([row for step in steps for row in step if any(row.loss_mask)]))
    return [[next(found) if any(row.loss_mask) else [0.0] * row.response_length for row in step] for step in steps]
