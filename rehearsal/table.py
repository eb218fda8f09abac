"""What a rehearsal has shown, as Markdown: what was exercised, what a cluster does otherwise, what was changed."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..launch.layout import Layout
from ..system.text import markdown_table
from .host_log import Metrics
from .rehearsal_plan import Rehearsal, differences


@dataclass(frozen=True)
class Seen:
    """What the runs of one rehearsal left behind."""

    metrics: Mapping[str, Metrics]
    resumed_at: int
    """The first rollout after the resume; -1: none was logged."""
    converted: str
    seconds: Mapping[str, float]
    commit: str


def report(rehearsal: Rehearsal, seen: Seen, wrong: Sequence[str]) -> str:
    """The page; ``wrong`` is what ``faults`` found."""
    plan = rehearsal.here
    driver = plan.checkout.driver(plan.config.fully_async).name
    commit = seen.commit[:8] or "(commit unknown)"
    title = f"# Rehearsed on {time.strftime('%Y-%m-%d')}: {driver} of {plan.checkout.name} {commit}"
    verdict = ["**Faults:**", "", *(f"- {line}" for line in wrong)] if wrong else ["No faults were found."]
    return "\n".join([
        title, "", *verdict, "",
        "## Exercised", "", _table(("what", "seen"), exercised(rehearsal, seen)), "",
        deviations(rehearsal),
    ])


def deviations(rehearsal: Rehearsal) -> str:
    """What is known before anything is run."""
    flags = differences(rehearsal.cluster, rehearsal.here)
    return "\n".join([
        "## The cluster will do differently", "", _table(("there", "here"), otherwise(rehearsal)), "",
        "## Every deviation of settings", "", _table(("setting or flag", "cluster", "here"), flags), "",
    ])


def faults(rehearsal: Rehearsal, seen: Seen) -> list[str]:
    """What a rehearsal must not show, a line each; a page with one is no pass."""
    config, found = rehearsal.here.config, []
    rollouts, steps = seen.metrics.get("rollout", {}), seen.metrics.get("step", {})
    wanted = config.num_rollout + 1
    if len(rollouts) != wanted:
        found.append(f"{len(rollouts)} of {wanted} rollouts were logged; see {rehearsal.here.folder / 'job.log'}")
    if seen.resumed_at != config.num_rollout:
        found.append(f"the resumed run began with rollout {seen.resumed_at}, not with {config.num_rollout}: it did "
                     "not continue from the checkpoint")
    if not steps:
        found.append("no optimizer step was logged; launch/job.log says why")
    if config.eval_interval and not seen.metrics.get("eval"):
        found.append("no evaluation was logged; launch/job.log says why")
    for number, metrics in rollouts.items():
        if failed := metrics.get("rollout/memory/failed"):
            found.append(f"rollout {number}: {failed:g} trajectories failed; launch/job.log says why")
    for number, metrics in steps.items():
        gap = metrics.get(_GAP, 0.0)
        # In FULLY_ASYNC samples are older than the weights they are trained on, by design.
        if not config.fully_async and not gap <= _LARGEST_GAP:
            found.append(f"step {number}: trainer and engine are {gap:.2g} apart in their log-probs, in float32: the "
                         "engine has other weights, or rows other tokens, than the trainer")
        if not math.isfinite(metrics.get("train/grad_norm", 0.0)):
            found.append(f"step {number}: the gradient norm is not finite")
    return found


_GAP, _LARGEST_GAP = "train/train_rollout_logprob_abs_diff", 1e-4


def _table(header: tuple[str, ...], rows: Sequence[Sequence[str]]) -> str:
    return markdown_table(header, rows, words=header)


def exercised(rehearsal: Rehearsal, seen: Seen) -> list[tuple[str, str]]:
    plan, metrics = rehearsal.here, seen.metrics
    rollouts, steps, evaluations = (metrics.get(kind, {}) for kind in ("rollout", "step", "eval"))
    layout = plan.layout
    return [
        ("the host's unedited driver, as a Ray job by the launcher's command",
         str(plan.checkout.driver(plan.config.fully_async))),
        ("rollouts through router and engine, with these hooks", f"{len(rollouts)}, {seen.seconds['train']:.0f} s"),
        ("reward", _series(rollouts, "rollout/memory/reward")),
        ("trajectories that failed, a rollout", _series(rollouts, "rollout/memory/failed")),
        ("log-probs of trainer and engine, mean difference", _series(steps, _GAP)),
        ("optimizer steps: gradient norm", _series(steps, "train/grad_norm")),
        ("KL to the reference", _series(steps, "train/kl_loss")),
        ("trainer ranks", _ranks(layout)),
        ("evaluation while training", _evaluations(evaluations) if evaluations else "no, FULLY_ASYNC=1 has none"),
        ("save, end, resume", f"continued with rollout {seen.resumed_at}, {seen.seconds['resume']:.0f} s"),
        ("conversion to Hugging Face", f"{seen.converted}, {seen.seconds['convert']:.0f} s"),
    ]


def otherwise(rehearsal: Rehearsal) -> list[tuple[str, str]]:
    cluster, host = rehearsal.cluster.layout, rehearsal.here.checkout.name
    transport = "CUDA IPC" if cluster.colocate else f"NCCL through {host}'s distributed updater"
    rows = [
        ("bf16 weights and activations", "float32"),
        ("CUDA kernels: Transformer Engine, FlashAttention, fused Adam", "the same layers in torch, on a CPU"),
        ("NCCL", "gloo"),
        (f"weights to the engines by {transport}", f"{host}'s distributed updater over gloo"),
    ]
    if cluster.data_parallel != rehearsal.here.layout.data_parallel:
        rows.append((f"data parallel {cluster.data_parallel}", f"data parallel {rehearsal.here.layout.data_parallel}"))
    if cluster.colocate:
        rows.append(("training and sampling share GPUs and take turns (colocation, offloading)", "each its own"))
    if rehearsal.random_model:
        rows.append(("the model that was given", "two layers with random weights: rewards and losses mean nothing"))
    return rows


def _ranks(layout: Layout) -> str:
    return f"{layout.train_gpus}: tensor {layout.tp}, pipeline {layout.pp}, data parallel {layout.data_parallel}"


def _series(metrics: Metrics, name: str) -> str:
    values = [of[name] for of in metrics.values() if name in of]
    return ", ".join(map(_number, values)) or "not logged"


def _evaluations(metrics: Metrics) -> str:
    """The headline of each set, rollout by rollout."""
    names = dict.fromkeys(n for of in metrics.values() for n in of if n.count("/") == 1)
    return "; ".join(f"{name} {_series(metrics, name)}" for name in names)


def _number(value: float) -> str:
    return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.3f}"
