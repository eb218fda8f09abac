"""The simulation beside real runs: ``python -m mem_agent.benchmarks.simulation.check [TRACE ...]``.

Each trace's trajectories are asked again, of simulated engines: with the real replies and the real choice of engine,
but nothing of the real times. What each engine computed and found in its cache is compared with its own counters.
Costs of a step are fitted to traces of one engine, by least squares on its CPU seconds; with them the engines of the
other traces are predicted, CPU seconds as they were counted and wall seconds as on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...system.errors import MemAgentError
from ...system.markdown import markdown_table
from ...system.one_line_errors import one_line_errors
from .engine import Counts, Limits, StepCosts
from .prompts import least_computed, trace_trajectories
from .rollout import Fleet, Outcome, simulate
from .traces import RECORDED, Trace, committed, read_trace

COSTS = 6
GUESS = StepCosts(step=0.0052, prompt_token=8.1e-5, sequence=4.3e-4, context_token=2.6e-7)
"""Before any calibration: the order of magnitude of this pack's CPU engines, which only sets when steps end."""


@dataclass(frozen=True)
class Costs:
    """CPU seconds of an engine's processes: those of its steps, and those of each request."""

    steps: StepCosts
    request: float

    def seconds(self, counts: Counts) -> float:
        return float(np.dot(features(counts), [*self.weights, self.request]))

    @property
    def weights(self) -> list[float]:
        s = self.steps
        return [s.step, s.prompt_token, s.sequence, s.context_token, s.pair]


def features(counts: Counts) -> list[float]:
    """What costs of a step and of a request are multiplied with."""
    computed = counts.computed + counts.repeated
    return [counts.steps, computed, counts.decoded, counts.context, counts.pairs, counts.requests]


def replay(trace: Trace, costs: StepCosts = GUESS) -> Outcome:
    """The trace's run on simulated engines."""
    settings = trace.settings
    limits = Limits(
        block=settings["block"], blocks=settings["kv_blocks"][0] - 1,  # one block of vLLM's stands for none
        sequences=settings["max_sequences"], step_tokens=settings["step_tokens"], chunked=False,
    )
    fleet = Fleet(engines=settings["engines"], costs=costs, limits=limits, route="recorded", turn_s=0.01)
    return simulate(trace_trajectories(trace, limits.block), fleet)


def fit(traces: Sequence[Trace], rounds: int = 3) -> Costs:
    """Costs from traces of one engine; a cost that would be negative is none. Relative errors are minimised."""
    costs = Costs(GUESS, 0.0)
    for _ in range(rounds):  # when steps end depends a little on what they cost
        rows = [features(replay(trace, costs.steps).engines[0]) for trace in traces]
        spent = np.array([trace.engines[0]["cpu_s"] for trace in traces])
        weights = nonnegative(np.array(rows) / spent[:, None], np.ones(len(traces)))
        costs = Costs(StepCosts(*weights[:5]), weights[5])
    return costs


def nonnegative(matrix: Any, target: Any) -> list[float]:
    """Least squares; columns with a negative weight are left out, the worst one first."""
    columns = list(range(matrix.shape[1]))
    while True:
        scale = np.abs(matrix[:, columns]).max(axis=0)
        weights = np.linalg.lstsq(matrix[:, columns] / scale, target, rcond=None)[0] / scale
        if (weights >= 0).all():
            found = dict(zip(columns, weights, strict=True))
            return [float(found.get(column, 0.0)) for column in range(matrix.shape[1])]
        del columns[int(np.argmin(weights * scale))]


def calibration_traces(folder: Path) -> list[Trace]:
    files = sorted(folder.glob("calibrate-1-*.json.gz"))
    if len(files) < COSTS:
        raise MemAgentError(f"{folder}: {len(files)} traces calibrate-1-*.json.gz; {COSTS} costs need {COSTS} or more")
    return [read_trace(file) for file in files]


# --- the comparison -----------------------------------------------------------------------------------------------


def compare(trace: Trace, costs: Costs) -> dict[str, Any]:
    """Real and simulated figures of one run."""
    outcome = replay(trace, costs.steps)
    engines = list(zip(trace.engines, outcome.engines, strict=True))
    return {
        "run": trace.settings["name"], "turns": len(trace.turns),
        "computed": [int(real["sent"] - real["cached"]) for real, _ in engines],
        "computed_simulated": [counts.computed for _, counts in engines],
        "least": least_computed(trace_trajectories(trace, trace.settings["block"]), trace.settings["block"]),
        "sent_off": sum(abs(real["sent"] - counts.sent) for real, counts in engines),
        "steps": [int(real["steps"]) for real, _ in engines],
        "steps_simulated": [counts.steps for _, counts in engines],
        "cpu": [real["cpu_s"] for real, _ in engines],
        "cpu_simulated": [costs.seconds(counts) for _, counts in engines],
        "wall": trace.settings["wall_s"], "wall_simulated": outcome.seconds, "load": trace.settings["load"],
    }


HEADER = ("run", "computed, each engine", "simulated", "off", "least, one engine", "steps", "simulated", "CPU s",
          "simulated", "off", "wall s", "simulated", "load")


def cells(found: Mapping[str, Any]) -> list[object]:
    row = [
        found["run"], _numbers(found["computed"]), _numbers(found["computed_simulated"]),
        _off(sum(found["computed_simulated"]), sum(found["computed"])), f"{found['least']:,}",
        _numbers(found["steps"]), _numbers(found["steps_simulated"]),
    ]
    cpu = [" + ".join(f"{value:.1f}" for value in found[name]) for name in ("cpu", "cpu_simulated")]
    return [*row, *cpu, _off(sum(found["cpu_simulated"]), sum(found["cpu"])), f"{found['wall']:.1f}",
            f"{found['wall_simulated']:.1f}", found["load"]]


def _numbers(values: Sequence[float]) -> str:
    return " + ".join(f"{value:,}" for value in values)


def _off(simulated: float, real: float) -> str:
    return f"{simulated / real - 1:+.1%}"


@one_line_errors("nothing was written")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare the simulation with recorded rollouts.")
    parser.add_argument("traces", nargs="*", type=Path, help="default: those that come with the pack")
    parser.add_argument("--calibration", type=Path, default=RECORDED, help="folder with traces of one engine")
    options = parser.parse_args(argv)
    calibration = calibration_traces(options.calibration)
    costs = fit(calibration)
    values = asdict(costs.steps) | {"request": costs.request}
    print("CPU seconds:", ", ".join(f"{name} {value:.3g}" for name, value in values.items()), "\n")
    print(markdown_table(HEADER, [cells(compare(trace, costs)) for trace in calibration], words=("run",)), "\n")
    rows = [cells(compare(read_trace(file), costs)) for file in options.traces or committed()]
    print(markdown_table(HEADER, rows, words=("run",)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
