"""A whole step: ``python -m mem_agent.benchmarks.step SAVE_PATH`` reads a run's ``metrics.jsonl``.

Prints, as medians over its rollouts, the step time split into rollout, log-probs, update and weight sync, generated
and prompt tokens per second of rollout, and trained tokens per second of log-probs plus update.
"""

from __future__ import annotations

import sys
from statistics import median

from ..training.run_log import read_metrics

PHASES = ("rollout", "log_probs", "update", "sync")


def summary(save_path: str) -> list[str]:
    """The lines that are printed."""
    steps = read_metrics(save_path)
    total = median(s["seconds"] for s in steps)
    lines = [f"{len(steps)} rollouts, {median(s['trajectories'] for s in steps):.0f} trajectories each"]
    lines.append(f"step {total:.2f} s")
    for phase in PHASES:
        part = median(s[f"seconds/{phase}"] for s in steps)
        lines.append(f"  {phase:10} {part:6.2f} s  {part / total:5.0%}")
    ended = [s for s in steps if "response_tokens" in s]
    for name in ("response_tokens", "prompt_tokens"):
        rate = median(s[name] * (s["trajectories"] - s["failed"]) / s["seconds/rollout"] for s in ended)
        lines.append(f"rollout {name.replace('_', ' ')}/s: {rate:,.0f}")
    trained = median(s["row_tokens"] / (s["seconds/log_probs"] + s["seconds/update"]) for s in steps)
    lines.append(f"trainer row tokens/s (log-probs and update together): {trained:,.0f}")
    lines.append(f"prefix cache hits: {median(s['prefix_cache_hit_rate'] for s in ended):.0%} of prompt tokens")
    return lines


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m mem_agent.benchmarks.step SAVE_PATH")
    print("\n".join(summary(sys.argv[1])))
