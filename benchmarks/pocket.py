"""The pocket run as a newcomer starts it, after the installation: ``bash run-train.sh``, wall seconds by phase.

Before and after the rollouts is what their own clock does not hold: data, evaluation, engines, conversion. Settings
are the recipe's, whatever the environment says; data and run are in a folder of their own. A quick run has 4 rollouts
and no evaluation.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..config import variable_names
from ..training.run_log import read_metrics
from .outcome import BenchmarkError, Outcome, print_alone
from .step import PHASES, outcomes

NAME = "pocket"
PACK = Path(__file__).parents[1]
TARGET_S = 300.0
FINISHED = re.compile(r"rollout (\d+)/(\d+) \|")
"""A rollout's line, printed when its step is over."""


def measure(quick: bool = False) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as name:
        settings = {"SAVE_PATH": f"{name}/run", "RECIPE": str(PACK / "recipes" / "pocket.env"), "VENV": sys.prefix}
        settings |= {"POCKET_DATA": f"{name}/data"}
        if quick:
            settings |= {"NUM_ROLLOUT": "4", "EVAL": "0"}
        log = Path(name) / "log"
        total, first, last = run(settings, log)
        steps = read_metrics(settings["SAVE_PATH"])
    target = None if quick else TARGET_S
    return lines(total, first, last, steps, target)


def run(settings: Mapping[str, str], log: Path) -> tuple[float, float, float]:
    """Seconds of the whole run, and from its begin to the ends of its first and its last step."""
    began = time.perf_counter()
    ends: list[float] = []
    command = ["bash", str(PACK / "run-train.sh")]
    environment = {name: value for name, value in os.environ.items() if name not in variable_names()}
    with log.open("w") as kept, subprocess.Popen(
        command, env=environment | settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            kept.write(line)
            if FINISHED.search(line):
                ends.append(time.perf_counter() - began)
    total = time.perf_counter() - began
    if process.returncode or not ends:
        sys.stderr.write("".join(f"{line}\n" for line in log.read_text().splitlines()[-20:]))
        raise BenchmarkError(f"run-train.sh ended with {process.returncode} after {len(ends)} rollouts")
    return total, ends[0], ends[-1]


def lines(total: float, first: float, last: float, steps: Sequence[Mapping[str, float]], target: float | None
          ) -> list[Outcome]:
    phases = {phase: sum(s[f"seconds/{phase}"] for s in steps) for phase in PHASES}
    parts = {
        "before the first rollout": first - steps[0]["seconds"],
        **{f"all rollouts: {phase}": seconds for phase, seconds in phases.items()},
        "between steps": last - first - sum(s["seconds"] for s in steps[1:])
        + sum(s["seconds"] for s in steps) - sum(phases.values()),
        "after the last rollout": total - last,
    }
    count = f"{len(steps)} rollouts"
    return [
        Outcome(NAME, "the whole run", (total,), unit="s", target=target, at_most=True, note=count),
        *(Outcome(NAME, what, (part,), unit="s", note=f"{part / total:.0%}") for what, part in parts.items()),
        *outcomes(NAME, steps),
    ]


if __name__ == "__main__":
    print_alone(measure)
