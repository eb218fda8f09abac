"""What a rehearsal has shown, as Markdown: what was exercised and what was changed. What a CPU cannot show is in
docs/rehearsal.md.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..launch.checkout import Checkout
from ..system.text import markdown_table
from .host_log import GAP, Metrics
from .rehearsal_plan import Rehearsal, differences

_LARGEST_GAP = 1e-4


@dataclass(frozen=True)
class Seen:
    """What the runs of one rehearsal left behind."""

    metrics: Mapping[str, Metrics]
    resumed_at: int
    """The first rollout after the resume; -1: none was logged."""
    converted: Path
    seconds: Mapping[str, float]


def report(rehearsal: Rehearsal, seen: Seen, wrong: Sequence[str]) -> str:
    """The page; ``wrong`` is what ``faults`` found."""
    plan, layout, metrics = rehearsal.here, rehearsal.here.layout, seen.metrics
    driver = plan.checkout.driver(plan.config.fully_async)
    rows = [
        ("the host's unedited driver, as a Ray job by the launcher's command", driver),
        ("model", "two layers with random weights: rewards and losses mean nothing" if rehearsal.random_model
         else plan.config.hf_ckpt),
        ("rollouts through router and engine, with these hooks",
         f"{len(metrics['rollout'])}, {seen.seconds['train']:.0f} s"),
        ("reward", _series(metrics["rollout"], "rollout/memory/reward")),
        ("trajectories that failed, a rollout", _series(metrics["rollout"], "rollout/memory/failed")),
        ("log-probs of trainer and engine, mean difference", _series(metrics["step"], GAP)),
        ("optimizer steps: gradient norm", _series(metrics["step"], "train/grad_norm")),
        ("KL to the reference", _series(metrics["step"], "train/kl_loss")),
        ("trainer ranks",
         f"{layout.train_gpus}: tensor {layout.tp}, pipeline {layout.pp}, data parallel {layout.data_parallel}"),
        ("evaluation while training", _evaluations(metrics["eval"]) or "no, FULLY_ASYNC=1 has none"),
        ("save, end, resume", f"continued with rollout {seen.resumed_at}, {seen.seconds['resume']:.0f} s"),
        ("conversion to Hugging Face", seen.converted),
    ]
    verdict = ["**Faults:**", "", *(f"- {line}" for line in wrong)] if wrong else ["No faults were found."]
    return "\n".join([
        f"# Rehearsed on {time.strftime('%Y-%m-%d')}: {driver.name} of {plan.checkout.name} {commit(plan.checkout)}",
        "", *verdict, "", "## Exercised", "", _table(("what", "seen"), rows), "", deviations(rehearsal),
    ])


def deviations(rehearsal: Rehearsal) -> str:
    """What is known before anything is run."""
    rows = differences(rehearsal.cluster, rehearsal.here)
    return "\n".join([
        "## Every deviation of settings", "", _table(("setting or flag", "cluster", "here"), rows), "",
    ])


def faults(rehearsal: Rehearsal, seen: Seen) -> list[str]:
    """What a rehearsal must not show, a line each; a page with one is no pass."""
    config, log, found = rehearsal.here.config, rehearsal.here.folder / "job.log", []
    for kind, wanted in (("rollout", config.num_rollout + 1), ("step", 1), ("eval", config.eval_interval)):
        if (logged := len(seen.metrics[kind])) < wanted:
            found.append(f"{kind}: {logged} logged, {wanted} wanted; {log} says why")
    if seen.resumed_at != config.num_rollout:
        found.append(f"the resumed run began with rollout {seen.resumed_at}, not with {config.num_rollout}: it did "
                     "not continue from the checkpoint")
    for number, metrics in seen.metrics["rollout"].items():
        if failed := metrics.get("rollout/memory/failed"):
            found.append(f"rollout {number}: {failed:g} trajectories failed; {log} says why")
    for number, metrics in seen.metrics["step"].items():
        gap = metrics.get(GAP, 0.0)
        # In FULLY_ASYNC samples are older than the weights they are trained on, by design.
        if not config.fully_async and not gap <= _LARGEST_GAP:
            found.append(f"step {number}: trainer and engine are {gap:.2g} apart in their log-probs, in float32: the "
                         "engine has other weights, or rows other tokens, than the trainer")
        if not math.isfinite(metrics.get("train/grad_norm", 0.0)):
            found.append(f"step {number}: the gradient norm is not finite")
    return found


def commit(checkout: Checkout) -> str:
    """The checkout's commit, empty where git cannot tell or is not there."""
    if shutil.which("git") is None:
        return ""
    asked = ["git", "-C", str(checkout.root), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.strip()


def _table(header: tuple[str, ...], rows: Sequence[Sequence[object]]) -> str:
    return markdown_table(header, rows, words=header)


def _series(metrics: Metrics, name: str) -> str:
    return ", ".join(f"{of[name]:.3g}" for of in metrics.values() if name in of) or "not logged"


def _evaluations(metrics: Metrics) -> str:
    """The headline of each set, rollout by rollout."""
    names = dict.fromkeys(n for of in metrics.values() for n in of if n.count("/") == 1)
    return "; ".join(f"{name} {_series(metrics, name)}" for name in names)
