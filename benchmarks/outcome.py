"""What a benchmark finds: lines of numbers, each with its target; their JSON and their table.

A line of ratios, measured in three rounds::

    Outcome("trainer", "update, pocket rows: tries against rows", (8.1, 7.9, 8.4), target=8)
    | trainer | update, pocket rows: tries against rows | 8 | 8.10 times (7.90 to 8.40) | yes | |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..system.errors import MemAgentError
from ..system.text import markdown_table
from .stopwatch import Sample, Spread, spread

_FORMATS = {"times": "{:.2f} times", "share": "{:.1%}", "s": "{:.2f} s", "ms": "{:.2f} ms", "MB": "{:,.0f} MB",
            "GB": "{:.2f} GB", "tokens/s": "{:,.0f} tokens/s", "tokens": "{:,.0f} tokens", "GFLOP/s": "{:.1f} GFLOP/s",
            "texts/s": "{:,.1f} texts/s"}


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
    wall: tuple[float, ...] = ()
    """The same ratio by wall seconds, where ``values`` are by CPU seconds."""
    samples: Mapping[str, Sequence[Sample]] = field(default_factory=dict)
    """What the values were computed from."""

    def __post_init__(self) -> None:
        assert self.unit in _FORMATS, self.unit
        assert self.values or self.note, f"{self.key} says nothing"

    @property
    def key(self) -> str:
        return f"{self.benchmark}: {self.what}"

    @property
    def spread(self) -> Spread | None:
        return spread(self.values) if self.values else None

    @property
    def met(self) -> bool | None:
        """Whether the median meets the target; None where there is none, or nothing was measured."""
        if self.target is None or self.spread is None:
            return None
        return self.spread.median <= self.target if self.at_most else self.spread.median >= self.target


def to_json(outcome: Outcome) -> dict[str, Any]:
    of_all = {"spread": asdict(outcome.spread) if outcome.spread else None, "met": outcome.met}
    return asdict(outcome) | of_all


def from_json(content: Mapping[str, Any]) -> Outcome:
    samples = {name: [Sample(**one) for one in many] for name, many in content["samples"].items()}
    own = {name: content[name] for name in Outcome.__dataclass_fields__}
    return Outcome(**own | {"samples": samples, "values": tuple(own["values"]), "wall": tuple(own["wall"])})


# --- the table ----------------------------------------------------------------------------------------------------

HEADER = ("benchmark", "what", "target", "measured: median (least to most)", "met", "remarks")


def table(outcomes: Iterable[Outcome]) -> str:
    rows = [(o.benchmark, o.what, _target(o), _measured(o), _met(o), _remarks(o)) for o in outcomes]
    return markdown_table(HEADER, rows, words=HEADER)


def _target(outcome: Outcome) -> str:
    if outcome.target is None:
        return ""
    return f"{'at most ' if outcome.at_most else ''}{_FORMATS[outcome.unit].format(outcome.target)}"


def _measured(outcome: Outcome) -> str:
    if outcome.spread is None:
        return "not measured"
    shown = [_FORMATS[outcome.unit].format(v) for v in (outcome.spread.median, outcome.spread.least,
                                                        outcome.spread.most)]
    numbers = [text.partition(" ")[0] for text in shown[1:]]
    return shown[0] if len(outcome.values) == 1 else f"{shown[0]} ({numbers[0]} to {numbers[1]})"


def _met(outcome: Outcome) -> str:
    if outcome.target is None:
        return ""
    return {True: "yes", False: "**no**", None: "not measured"}[outcome.met]


def _remarks(outcome: Outcome) -> str:
    by_wall = f"by wall {spread(outcome.wall).median:.2f}" if outcome.wall else ""
    return "; ".join(part for part in (by_wall, outcome.note) if part)


def print_alone(measure: Callable[[], Sequence[Outcome]]) -> None:
    """What ``python -m mem_agent.benchmarks.NAME`` does: this one benchmark, in this process."""
    print(table(measure()), flush=True)
