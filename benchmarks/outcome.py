"""What a benchmark finds, how it takes time, and the table.

Alternatives are measured in turns, A B A B, and compared round by round, so a busy machine slows both alike. CPU
seconds are those of this process, all its threads together; on a shared machine they say what wall seconds say on a
quiet one, as long as the work is done on one thread. A line of ratios, measured in three rounds::

    Outcome("trainer", "update, pocket rows: tries against rows", (8.1, 7.9, 8.4), target=8)
    | trainer | update, pocket rows: tries against rows | 8.00 times | 8.10 times (7.90 to 8.40) | yes | |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from statistics import median

from ..system.errors import MemAgentError
from ..system.text import markdown_table

HEADER = ("benchmark", "what", "target", "measured: median (least to most)", "met", "remarks")
_FORMATS = {"times": "{:.2f} times", "s": "{:.2f} s", "ms": "{:.2f} ms", "MB": "{:,.0f} MB",
            "tokens/s": "{:,.0f} tokens/s"}


class BenchmarkError(MemAgentError):
    """A benchmark that cannot run here; the message says why and what helps."""


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

    @property
    def cells(self) -> tuple[str, ...]:
        form = _FORMATS[self.unit].format
        target = "" if self.target is None else "at most " * self.at_most + form(self.target)
        if not self.values:
            return self.benchmark, self.what, target, "not measured", "", self.note
        middle, least, most = median(self.values), min(self.values), max(self.values)
        spread = f" ({form(least).split()[0]} to {form(most).split()[0]})" if len(self.values) > 1 else ""
        met = ""
        if self.target is not None:
            met = "yes" if (middle <= self.target if self.at_most else middle >= self.target) else "**no**"
        return self.benchmark, self.what, target, form(middle) + spread, met, self.note


def measure(module: str, quick: bool) -> list[Outcome]:
    """What a benchmark finds; here, where a new process can import it, whatever module is the program."""
    return import_module(module).measure(quick)


def table(outcomes: Iterable[Outcome]) -> str:
    return markdown_table(HEADER, (outcome.cells for outcome in outcomes), words=HEADER)


def cpu_seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def wall_seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def ratios(slow: Callable[[], float], quick: Callable[[], float], rounds: int) -> tuple[float, ...]:
    """How many times less ``quick`` takes, round by round: 8.0 and 9.0 against 1.0 and 1.2 are 8.0 and 7.5."""
    return tuple(slow() / quick() for _ in range(rounds))
