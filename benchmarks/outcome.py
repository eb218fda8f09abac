"""What a benchmark finds, how it takes time, and the table.

Alternatives are measured in turns, A B A B, and compared round by round, so a busy machine slows both alike. CPU
seconds are those of this process, all its threads together; on a shared machine they say what wall seconds say on a
quiet one, as long as the work is done on one thread. A line of ratios, measured in three rounds::

    Outcome("update, pocket rows: tries against rows", (8.1, 7.9, 8.4), target=8)
    | update, pocket rows: tries against rows | 8.00 times | 8.10 times (7.90 to 8.40) | yes | |
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from statistics import median

from ..system.text import markdown_table

HEADER = ("what", "target", "measured: median (least to most)", "met", "remarks")


@dataclass(frozen=True)
class Outcome:
    """One line: what was measured, once for each round; no value at all where ``note`` says why there is none."""

    what: str
    values: tuple[float, ...] = ()
    unit: str = "times"
    target: float | None = None
    at_most: bool = False
    """Whether less is better."""
    note: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        def shown(value: float) -> str:
            return f"{value:,.{0 if value >= 1000 or self.unit == 'MB' else 2}f}"

        middle, spread, target, met = median(self.values or [0.0]), "", "", ""
        if self.target is not None:
            target = f"{'at most ' * self.at_most}{shown(self.target)} {self.unit}"
            met = "yes" if (middle <= self.target if self.at_most else middle >= self.target) else "**no**"
        if not self.values:
            return self.what, target, "not measured", "", self.note
        if len(self.values) > 1:
            spread = f" ({shown(min(self.values))} to {shown(max(self.values))})"
        return self.what, target, f"{shown(middle)} {self.unit}{spread}", met, self.note


def measure(function: str, quick: bool) -> list[Outcome]:
    """What a benchmark finds; here, where a new process can import it, whatever module is the program."""
    found = resolve_name(f"{__package__}.{function}")(quick)
    return asyncio.run(found) if asyncio.iscoroutine(found) else found


def table(outcomes: Iterable[Outcome]) -> str:
    return markdown_table(HEADER, (outcome.cells for outcome in outcomes), words=HEADER)


def seconds(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    call()
    return clock() - began


def cpu_ratios(slow: Callable[[], object], quick: Callable[[], object], rounds: int) -> tuple[float, ...]:
    """How many times less CPU ``quick`` takes, round by round: 8.0 and 9.0 s against 1.0 and 1.2 are 8.0 and 7.5."""
    return tuple(seconds(slow, time.process_time) / seconds(quick, time.process_time) for _ in range(rounds))


def seconds_and_peak(call: Callable[[], object]) -> tuple[float, int]:
    """How long a call takes, and the most bytes that this process holds meanwhile (Linux, proc(5): writing 5 to
    clear_refs resets VmHWM)."""
    Path("/proc/self/clear_refs").write_text("5")
    took = seconds(call)
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return took, 1024 * int(line.split()[1])
