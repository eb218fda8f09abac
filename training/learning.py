"""What the trainer does with one rollout: log-probs where they are needed, then its optimizer steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..config import Config
from .group_rollout import RolloutError
from .journal import Rollout
from .loss import moving_rows
from .packing import trie_tokens
from .rows import TrainRow, optimizer_steps, rows_from_train_data


def learn(config: Config, trainer: Any, rollout: Rollout, number: int) -> dict[str, float]:
    """Log-probs under the old and the reference policy, then the steps of rollout ``number``; metrics are means.

    The first step needs no old log-probs: its own are those. A rollout of two steps scores the rows of the second.
    LOSS=sft needs none at all.
    """
    rows = rows_from_train_data(rollout.train_data, trainer.bridge.vocab_size)
    steps = optimizer_steps(rows, config.step_trajectories)
    assert [row for step in steps for row in step] == rows, "a trajectory's rows follow each other"
    began = time.monotonic()
    if config.supervised:
        scored = began
        results = [trainer.sft_step(step, rollout=number) for step in steps]
    else:
        scored, results = _policy_steps(config, trainer, steps, number)
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
    config: Config, trainer: Any, steps: Sequence[list[TrainRow]], number: int
) -> tuple[float, list[dict[str, float]]]:
    """(when the log-probs were there, the metrics of each step)."""
    reference: Sequence[Any] = [None] * len(steps)
    if config.compares_with_reference:
        reference = scores(trainer.reference_log_probs, steps, config.kl_coef)
    old = [None, *scores(trainer.log_probs, steps[1:], config.kl_coef)]
    scored = time.monotonic()
    return scored, [
        trainer.train_step(step, sampled, ref, rollout=number)
        for step, sampled, ref in zip(steps, old, reference, strict=True)
    ]


def scores(
    log_probs: Callable[[list[TrainRow]], list[list[float]]], steps: Sequence[Sequence[TrainRow]], kl_coef: float
) -> list[list[list[float]]]:
    """For each step the log-probs of its rows; zeros for rows without a gradient, which the step does not look at."""
    moving = [set(moving_rows(step, kl_coef)) for step in steps]
    chosen = [row for step, which in zip(steps, moving, strict=True) for i, row in enumerate(step) if i in which]
    found = iter(log_probs(chosen))
    return [
        [next(found) if i in which else [0.0] * row.response_length for i, row in enumerate(step)]
        for step, which in zip(steps, moving, strict=True)
    ]
