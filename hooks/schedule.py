"""The learning rate of every optimizer step, and the hook that brings a warm-up counted in rollouts into the hosts.

Megatron's scheduler counts optimizer steps. The published trainers (verl's ``fsdp_workers``, under MemAgent and
ReMemR1) step theirs once a rollout, of 16 optimizer steps there: the warm-up is a staircase, and the whole first
rollout moves nothing. Example, LR 1e-6, two steps a rollout::

    LR_WARMUP_STEPS=4       0      0.25e-6   0.5e-6   0.75e-6   1e-6   1e-6
    LR_WARMUP_ROLLOUTS=2    0      0         0.5e-6   0.5e-6    1e-6   1e-6
"""

from __future__ import annotations

from typing import Any

from ..config import Config
from .host import HostArgs


def learning_rate(config: Config, step: int, rollout: int | None = None) -> float:
    """Of optimizer step ``step``, from 0: as Megatron's scheduler has it, or by rollouts.

    Args:
        rollout: the step's, from 0; None: that of a run whose rollouts all had as many steps as these settings say.
    """
    if config.lr_warmup_rollouts:
        steps_per_rollout = config.trajectories_per_rollout // config.step_trajectories
        return rollout_learning_rate(config, step // steps_per_rollout if rollout is None else rollout)
    warmup = config.lr_warmup_steps
    return config.lr * step / warmup if step < warmup else config.lr


def rollout_learning_rate(config: Config, rollout: int) -> float:
    """That of all steps of rollout ``rollout``, from 0, under LR_WARMUP_ROLLOUTS."""
    return config.lr * min(1.0, rollout / config.lr_warmup_rollouts)


def set_rollout_learning_rate(
    args: Any, rollout_id: int, step_id: int, model: Any, optimizer: Any, opt_param_scheduler: Any
) -> None:
    """``--custom-megatron-before-train-step-hook-path`` of slime and vime: the rate of the step that follows.

    The host's scheduler has a constant rate then, which it sets again after each step.
    """
    config = HostArgs.of(args).config
    for group in optimizer.param_groups:
        group["lr"] = rollout_learning_rate(config, rollout_id)
