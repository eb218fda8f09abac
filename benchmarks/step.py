"""A whole step: ``python -m mem_agent.benchmarks.step SAVE_PATH`` reads the ``metrics.jsonl`` of any run.

Medians over its rollouts: the step's seconds by phase, generated and prompt tokens per second of rollout, row tokens
per second of log-probs and update, and the prompt tokens that were in the engines' prefix caches.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from statistics import median

from ..training.run_log import read_metrics
from .outcome import BenchmarkError, Outcome, table

PHASES = ("rollout", "log_probs", "update", "sync")


def outcomes(name: str, steps: Sequence[Mapping[str, float]]) -> list[Outcome]:
    """Lines of the benchmark ``name``, each value a rollout's."""
    total = median(s["seconds"] for s in steps)
    lines = [_line(name, "a step", [s["seconds"] for s in steps], "s", note=f"{len(steps)} rollouts")]
    for phase in PHASES:
        values = [s[f"seconds/{phase}"] for s in steps]
        lines.append(_line(name, f"a step's {phase}", values, "s", note=f"{median(values) / total:.0%} of it"))
    ended = [s for s in steps if "response_tokens" in s]
    for kind in ("response_tokens", "prompt_tokens"):
        rates = [s[kind] * (s["trajectories"] - s["failed"]) / s["seconds/rollout"] for s in ended]
        lines.append(_line(name, f"rollout, {kind.replace('_', ' ')}", rates, "tokens/s"))
    trained = [s["row_tokens"] / (s["seconds/log_probs"] + s["seconds/update"]) for s in steps]
    lines.append(_line(name, "row tokens trained, log-probs and update together", trained, "tokens/s"))
    hits = [s["prefix_cache_hit_rate"] for s in ended]
    return [*lines, _line(name, "prompt tokens in the prefix cache", hits, "share")]


def _line(name: str, what: str, values: Sequence[float], unit: str, note: str = "") -> Outcome:
    return Outcome(name, what, tuple(values), unit=unit, note=note or ("" if values else "no rollout has ended"))


def main(arguments: Sequence[str]) -> None:
    if len(arguments) != 1:
        sys.exit("usage: python -m mem_agent.benchmarks.step SAVE_PATH")
    try:
        steps = read_metrics(arguments[0])
        if not steps:
            raise BenchmarkError(f"{arguments[0]}/metrics.jsonl has no rollout yet")
    except (BenchmarkError, OSError) as error:
        sys.exit(f"error: {error}")
    print(table(outcomes("step", steps)))


if __name__ == "__main__":
    main(sys.argv[1:])
