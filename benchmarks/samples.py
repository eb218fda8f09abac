"""How many samples runs need until they are right often enough; two kinds of runs, compared seed by seed.

    python -m mem_agent.benchmarks.samples --first runs/arithmetic-no-* --second runs/arithmetic-knn+-*

Read from each run's ``metrics.jsonl``: ``accuracy`` is what the task alone gave, without what is paid for novelty. A
run has reached the accuracy with the first rollout that ends a window whose trajectories' mean is that high; a window
is the last ``--window`` rollouts, fewer at the start of a run counting as the missing ones being wrong::

    window 2, accuracy 0.5, 64 trajectories a rollout
    accuracy   0.1  0.3  0.6  0.5       means  0.05  0.2  0.45  0.55       reached after 4 x 64 = 256 samples

A run that has not reached it counts with all its samples, and as such (``>``): what it would have needed is more.

Runs of one seed began alike and saw the same questions, so differences are taken by seed (``SEED`` in the run's
``mem_agent.yaml``); interval and p are those of ``evaluation.statistics`` over seeds. Five seeds have 32 patterns of
signs, so p is 0.06 at least.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from ..config import SETTINGS_FILE
from ..evaluation.statistics import Comparison, compare
from ..training.run_log import read_metrics
from .outcome import BenchmarkError

ACCURACY, WINDOW = 0.5, 5


@dataclass(frozen=True)
class Reached:
    """What one run needed."""

    samples: int
    """Trajectories until the accuracy was reached, or all there are."""
    reached: bool
    last: float
    """Mean accuracy of the last window."""
    total: int
    """Trajectories of the whole run."""

    def __str__(self) -> str:
        return f"{'' if self.reached else '> '}{self.samples}"


def samples_until(steps: Sequence[Mapping[str, float]], accuracy: float = ACCURACY, window: int = WINDOW) -> Reached:
    """What a run needed whose rollouts these are. Raises BenchmarkError: none of them tells its accuracy."""
    if not any("accuracy" in step for step in steps):
        raise BenchmarkError("no rollout tells its accuracy")
    means, seen, found = [], 0, None
    for number, step in enumerate(steps):
        seen += int(step["trajectories"])
        recent = [one.get("accuracy", 0.0) for one in steps[max(0, number + 1 - window) : number + 1]]
        means.append(sum(recent) / window)
        if found is None and means[-1] >= accuracy:
            found = seen
    return Reached(found or seen, found is not None, means[-1], seen)


def by_seed(runs: Sequence[Path], accuracy: float, window: int) -> dict[str, Reached]:
    """Runs by their SEED. Raises BenchmarkError: two have the same, or a folder is no run."""
    found: dict[str, Reached] = {}
    for run in runs:
        try:
            seed = str(yaml.safe_load((run / SETTINGS_FILE).read_text())["mem_agent"]["SEED"])
            reached = samples_until(read_metrics(run), accuracy, window)
        except (OSError, KeyError, BenchmarkError) as error:
            raise BenchmarkError(f"{run}: {error!s:.200}; give the SAVE_PATH of runs") from None
        if seed in found:
            raise BenchmarkError(f"{run}: a second run with SEED={seed}")
        found[seed] = reached
    return found


def difference(first: Mapping[str, Reached], second: Mapping[str, Reached]) -> Comparison:
    """Samples of the second kind minus those of the first. Raises BenchmarkError: no seed in common."""
    if not set(first) & set(second):
        raise BenchmarkError("the two kinds of runs have no SEED in common")
    ours, theirs = ({seed: float(run.samples) for seed, run in runs.items()} for runs in (first, second))
    return compare(ours, theirs)


def table(first: Mapping[str, Reached], second: Mapping[str, Reached]) -> str:
    lines = ["| seed | first: samples | last window | second: samples | last window |", "|---|--:|--:|--:|--:|"]
    for seed in sorted(set(first) | set(second), key=int):
        cells = [f"{runs[seed]} | {runs[seed].last:.3f}" if seed in runs else " | " for runs in (first, second)]
        lines.append(f"| {seed} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m mem_agent.benchmarks.samples", description="Samples to accuracy.")
    parser.add_argument("--first", nargs="+", type=Path, required=True, metavar="SAVE_PATH")
    parser.add_argument("--second", nargs="+", type=Path, required=True, metavar="SAVE_PATH")
    parser.add_argument("--accuracy", type=float, default=ACCURACY)
    parser.add_argument("--window", type=int, default=WINDOW, help="rollouts")
    options = parser.parse_args(arguments)
    try:
        first, second = (by_seed(runs, options.accuracy, options.window) for runs in (options.first, options.second))
        found = difference(first, second)
    except BenchmarkError as error:
        sys.exit(f"error: {error}")
    print(table(first, second))
    less = found.difference
    print(f"\nsamples to {options.accuracy:g}, mean over {less.n} seeds: {found.first:.0f} and {found.second:.0f}; "
          f"second - first {less.mean:+.0f} ({less.low:+.0f} to {less.high:+.0f}), p {found.p:.2f}")


if __name__ == "__main__":
    main()
