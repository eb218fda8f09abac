"""What a benchmark finds, how it takes time, and the table.

Alternatives are measured in turns, A B A B, and compared round by round, so a busy machine slows both alike. CPU
seconds are those of the process that does the work, all its threads together; on a shared machine they say what wall
seconds say on a quiet one, as long as the work is done on one thread. A line of ratios, measured in three rounds::

    Outcome("trainer", "update, pocket rows: tries against rows", (8.1, 7.9, 8.4), target=8)
    | trainer | update, pocket rows: tries against rows | 8.00 times | 8.10 times (7.90 to 8.40) | yes | |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from ..system.errors import MemAgentError
from ..system.text import markdown_table

HEADER = ("benchmark", "what", "target", "measured: median (least to most)", "met", "remarks")
_FORMATS = {"times": "{:.2f} times", "s": "{:.2f} s", "ms": "{:.2f} ms", "MB": "{:,.0f} MB",
            "tokens/s": "{:,.0f} tokens/s"}


class BenchmarkError(MemAgentError):
    """A benchmark that cannot run here; the message says why and what helps."""


@dataclass(frozen=True)
class Sample:
    """One measurement, in seconds."""

    cpu: float
    wall: float


@dataclass(frozen=True)
class Outcome:
    """One line: what was measured, once for each round; no value at all where ``note`` says why there is none."""

    benchmark: str
    what: str
    values: tuple[float, ...] = ()
    unit: str = "times"
    target: float | None = None
    at_most: bool = False
    """Whether less is better."""
    note: str = ""
    wall: tuple[float, ...] = ()
    """The same ratio by wall seconds, where ``values`` are by CPU seconds."""
    samples: Mapping[str, Sequence[Sample]] = field(default_factory=dict)
    """What the values were computed from."""

    @property
    def met(self) -> bool | None:
        """Whether the median meets the target; None where there is none, or nothing was measured."""
        if self.target is None or not self.values:
            return None
        return median(self.values) <= self.target if self.at_most else median(self.values) >= self.target


def timed(call: Callable[[], object]) -> Sample:
    """What one call takes this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return Sample(time.process_time() - cpu, time.perf_counter() - wall)


def interleaved(variants: Mapping[str, Callable[[], Sample]], rounds: int) -> dict[str, list[Sample]]:
    """``rounds`` samples of every variant: each round measures all of them once, in the given order."""
    samples: dict[str, list[Sample]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, measure in variants.items():
            samples[name].append(measure())
    return samples


def ratio(benchmark: str, what: str, slow: Sequence[Sample], quick: Sequence[Sample], target: float | None = None,
          note: str = "") -> Outcome:
    """How many times quicker ``quick`` is, round by round: CPU 8.0 and 9.0 against 1.0 and 1.2 are 8.0 and 7.5."""
    pairs = list(zip(slow, quick, strict=True))
    return Outcome(benchmark, what, tuple(s.cpu / q.cpu for s, q in pairs), target=target, note=note,
                   wall=tuple(s.wall / q.wall for s, q in pairs), samples={"slow": slow, "quick": quick})


def table(outcomes: Iterable[Outcome]) -> str:
    return markdown_table(HEADER, map(_cells, outcomes), words=HEADER)


def _cells(outcome: Outcome) -> tuple[str, ...]:
    form = _FORMATS[outcome.unit].format
    least = "at most " if outcome.at_most else ""
    target = "" if outcome.target is None else least + form(outcome.target)
    measured, values = "not measured", outcome.values
    if values:
        spread = [form(value).partition(" ")[0] for value in (min(values), max(values))]
        measured = form(median(values)) + (f" ({spread[0]} to {spread[1]})" if len(values) > 1 else "")
    met = {True: "yes", False: "**no**", None: "not measured" if target else ""}[outcome.met]
    by_wall = f"by wall {median(outcome.wall):.2f}" if outcome.wall else ""
    remarks = "; ".join(part for part in (by_wall, outcome.note) if part)
    return outcome.benchmark, outcome.what, target, measured, met, remarks
