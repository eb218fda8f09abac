"""What a rehearsal has shown, as Markdown: what was exercised and what was changed. What a CPU cannot show is in
docs/hosts.md.

It is read off the metrics that slime and vime write into their job's log, one line each::

    [...] rollout_metrics.py:268 - perf 0: {'rollout/memory/reward': 0.156, ...}
    [...] model.py:918 - step 0: {'train/loss': 0.13, 'train/grad_norm': 1.92}
"""

from __future__ import annotations

import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..launch.model_args import flag_values
from ..launch.plan import Plan
from ..system.text import markdown_table
from .rehearsal_plan import Rehearsal

GAP = "train/train_rollout_logprob_abs_diff"
"""Mean difference of the log-probs that trainer and engine give to the same tokens."""
_LOGGED = re.compile(r"\b(step|rollout|perf|eval) (\d+): (\{.*\})\s*$", re.MULTILINE)
_NUMBER = re.compile(r"'([^']+)': (-?(?:\d[\d.e+-]*|inf|nan))[,}]")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_SUMMARY = re.compile(r"\b(rollout|eval) [0-9]+\b[^{]*: [0-9]+ trajectories \| .*")
"""Of this pack."""
_ERROR = re.compile(r"^(\(\w+ pid=\d+\) )*(ERROR [\d-]+ \S+ \S+ )?[\w.]*(Error|Exception): |\[(ERROR|CRITICAL)\]")
_STEP = ("train/loss", "train/grad_norm", "train/kl_loss", GAP)
_LARGEST_GAP = 1e-4
"""Of the log-probs of trainer and engine; both compute in float32."""
_PLACES = {"HF_CKPT", "TORCH_DIST", "SAVE_PATH", "REWARD_ARGS", "--hf-checkpoint", "--ref-load", "--load", "--save",
           "--custom-config-path", "--vllm-port"}
"""What differs on every machine."""

# --- the log ---------------------------------------------------------------------------------------------------------

Metrics = dict[int, dict[str, float]]


def read_log(path: Path, start: int = 0) -> dict[str, Metrics]:
    """``{"rollout" | "step" | "eval": {number: metrics}}`` in the file from byte ``start`` on, none where there is no
    file; what was logged last of a number stands.
    """
    text = path.read_bytes()[start:].decode(errors="replace") if path.is_file() else ""
    found: dict[str, Metrics] = {kind: defaultdict(dict) for kind in ("rollout", "step", "eval")}
    for kind, number, values in _LOGGED.findall(_COLOUR.sub("", text)):
        found["rollout" if kind == "perf" else kind][int(number)].update(_numbers(values))
    return found


def _numbers(text: str) -> dict[str, float]:
    """The numbers of a printed dict."""
    return {name: float(value) for name, value in _NUMBER.findall(text)}


def progress_of(line: str) -> str:
    """What a person wants to see of a line while it runs: this pack's summaries, steps, errors; else nothing."""
    plain = _COLOUR.sub("", line).rstrip()
    if ours := _SUMMARY.search(plain):
        return ours[0]
    if (logged := _LOGGED.search(plain)) and logged[1] == "step":
        values = _numbers(logged[3])
        named = [f"{name.partition('/')[2]} {values[name]:.3g}" for name in _STEP if name in values]
        return f"step {logged[2]}: {' | '.join(named)}"
    return plain if _ERROR.search(plain) else ""


# --- the page --------------------------------------------------------------------------------------------------------

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
    rows = [
        ("the host's unedited driver, as a Ray job by the launcher's command", plan.driver),
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
    commit = _commit(plan.config.host_root)
    verdict = ["**Faults:**", "", *(f"- {line}" for line in wrong)] if wrong else ["No faults were found."]
    return "\n".join([
        f"# Rehearsed on {time.strftime('%Y-%m-%d')}: {plan.driver.name} of {plan.config.host} {commit}",
        "", *verdict, "", "## Exercised", "",
        markdown_table(("what", "seen"), rows, words=("what", "seen")), "", deviations(rehearsal),
    ])


def deviations(rehearsal: Rehearsal) -> str:
    """What is known before anything is run."""
    header = ("setting or flag", "cluster", "here")
    table = markdown_table(header, differences(rehearsal.cluster, rehearsal.here), words=header)
    return f"## Every deviation of settings\n\n{table}\n"


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
    return found


def differences(cluster: Plan, here: Plan) -> list[tuple[str, str, str]]:
    """(setting or flag, on the cluster, here) for each that differs and is no place; a dash where it is not given."""
    one, other = (
        {name: str(value) for name, value in plan.config.to_mapping().items()}
        | {flag: value or "given" for flag, value in flag_values(plan.command).items()}
        for plan in (cluster, here)
    )
    pairs = [(name, one.get(name, "-"), other.get(name, "-")) for name in {**one, **other} if name not in _PLACES]
    return [pair for pair in pairs if pair[1] != pair[2]]


def _commit(root: str) -> str:
    """The checkout's commit, empty where it is no clone."""
    asked = ["git", "-C", root, "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.strip()


def _series(metrics: Metrics, name: str) -> str:
    return ", ".join(f"{of[name]:.3g}" for of in metrics.values() if name in of) or "not logged"


def _evaluations(metrics: Metrics) -> str:
    """The headline of each set, rollout by rollout."""
    names = dict.fromkeys(n for of in metrics.values() for n in of if n.count("/") == 1)
    return "; ".join(f"{name} {_series(metrics, name)}" for name in names)
