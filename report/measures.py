"""What the rows of a run say: scores and costs with 95% intervals, memory by turn, and paired differences.

Invariants:
- the unit of every interval is the question: samples of one question are averaged first;
- scores are over ALL rows, failed ones as the evaluation scored them; costs are over the rows that did not fail;
- two runs are subtracted question by question only where their data have the same hash;
- percent for scores, plain numbers for costs; what no row can tell is None, never 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..evaluation.statistics import RESAMPLES, Comparison, Estimate, by_question, compare, interval
from ..hooks.metrics import turn_range
from .results import METRICS, Cell, Row, Run

_COST_RESAMPLES = 2000
"""Costs vary little and there are many of them: their intervals are drawn coarser than the scores'."""

COSTS = ("turns", "rounds", "seconds", "document_tokens", "prompt_tokens", "response_tokens", "memory_tokens")


@dataclass(frozen=True, slots=True)
class TurnRange:
    """The memories after the turns of one range, pooled over trajectories."""

    name: str
    first: int
    tokens: Estimate
    gold: Estimate | None
    """Percent of memories in which an accepted answer stands; None where no question can tell."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One run, task and length."""

    run: str
    task: str
    length: str
    data: str | None
    questions: int
    rows: int
    failed: int
    missing: int
    """Answers that the other runs of the same data have, or other questions of this one, and this cell lacks."""
    scores: Mapping[str, Estimate]
    costs: Mapping[str, Estimate]
    """COSTS, as far as a row tells, and whatever else the agent counts."""
    turns: tuple[TurnRange, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """``run`` minus ``base`` in one metric over the questions that both have, in points."""

    run: str
    base: str
    task: str
    length: str
    metric: str
    found: Comparison


def summarise(runs: Sequence[Run]) -> tuple[Summary, ...]:
    """One summary per run, task and length, in the order of the runs."""
    known = _known_questions(runs)
    return tuple(_summary(run.label, cell, known[_key(run, cell)]) for run in runs for cell in run.cells)


def question_means(rows: Iterable[Row], value: Callable[[Row], float | None]) -> dict[str, float]:
    """The mean over the samples of each question, without the rows that cannot tell."""
    told = ((row.question, value(row)) for row in rows)
    return by_question((question, number) for question, number in told if number is not None)


def main_metric(scores: Iterable[str]) -> str | None:
    """The metric that a task is judged by: RULER's own where it is, else one-directional containment."""
    names = set(scores)
    return next((name for name in ("ruler", "sub_em", *METRICS) if name in names), None)


def doings(summaries: Iterable[Summary]) -> list[str]:
    """What the agents of these runs count beside COSTS; tokens of other things are left to the CSV."""
    names = dict.fromkeys(name for s in summaries for name in s.costs)
    return [name for name in names if name not in COSTS and not name.endswith("_tokens")]


def differences(runs: Sequence[Run]) -> tuple[Difference, ...]:
    """Every later run against the first one, wherever both answered questions of the same data."""
    base = runs[0]
    found = [_difference(run, base, cell, other) for run in runs[1:] for cell, other in _shared_cells(run, base)]
    return tuple(difference for difference in found if difference)


def conflicting(runs: Sequence[Run]) -> dict[str, list[list[str]]]:
    """The runs by data file, for the task and lengths where they do not all have the same one."""
    by_data: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for cell in run.cells:
            by_data[cell.stem][_key(run, cell)[1]].append(run.label)
    return {stem: list(groups.values()) for stem, groups in by_data.items() if len(groups) > 1}


def _key(run: Run, cell: Cell) -> tuple[str, str]:
    return cell.stem, cell.data or f"unknown, of {run.label}"


def _known_questions(runs: Sequence[Run]) -> dict[tuple[str, str], set[str]]:
    known: dict[tuple[str, str], set[str]] = defaultdict(set)
    for run in runs:
        for cell in run.cells:
            known[_key(run, cell)] |= {row.question for row in cell.rows}
    return known


def _summary(label: str, cell: Cell, known: set[str]) -> Summary:
    rows, ended = cell.rows, [row for row in cell.rows if row.failure is None]
    samples = max((row.sample for row in rows), default=0) + 1
    names = [name for name in METRICS if rows and all(name in row.scores for row in rows)]
    scores = {name: _estimate(rows, _score_of(name), RESAMPLES, full=100.0) for name in names}
    counted = dict.fromkeys((*COSTS, *(name for row in ended for name in row.counts)))
    costs = {name: _estimate(ended, _cost_of(name)) for name in counted}
    return Summary(
        run=label, task=cell.task, length=cell.length, data=cell.data,
        questions=len({row.question for row in rows}), rows=len(rows), failed=len(rows) - len(ended),
        missing=max(0, len(known) * samples - len(rows)),
        scores={name: score for name, score in scores.items() if score},
        costs={name: cost for name, cost in costs.items() if cost},
        turns=_turns(ended),
    )


def _estimate(
    rows: Iterable[Row],
    value: Callable[[Row], float | None],
    resamples: int = _COST_RESAMPLES,
    full: float | None = None,
) -> Estimate | None:
    """Mean and interval over questions; None where no row can tell."""
    means = question_means(rows, value)
    return interval(means.values(), full=full, resamples=resamples) if means else None


def _score_of(metric: str) -> Callable[[Row], float]:
    return lambda row: 100 * row.scores[metric]


def _cost_of(name: str) -> Callable[[Row], float | None]:
    return lambda row: row.seconds if name == "seconds" else row.counts.get(name)


def _turns(rows: Sequence[Row]) -> tuple[TurnRange, ...]:
    longest = max((len(row.memories) for row in rows), default=0)
    firsts = {turn_range(number): number for number in range(longest, 0, -1)}
    return tuple(_turn_range(rows, name, first) for name, first in sorted(firsts.items(), key=lambda item: item[1]))


def _turn_range(rows: Sequence[Row], name: str, first: int) -> TurnRange:
    turns = slice(first - 1, max(1, 2 * (first - 1)))
    assert turn_range(turns.stop) == name, (name, first)
    tokens = _estimate(rows, lambda row: _mean(m["tokens"] for m in row.memories[turns]))
    gold = _estimate(rows, lambda row: _percent(m.get("gold") for m in row.memories[turns]))
    assert tokens, "a range is there because some memory falls in it"
    return TurnRange(name, first, tokens, gold)


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return fmean(numbers) if numbers else None


def _percent(told: Iterable[bool | None]) -> float | None:
    return _mean(100.0 * found for found in told if found is not None)


def _shared_cells(run: Run, base: Run) -> list[tuple[Cell, Cell]]:
    others = {cell.stem: cell for cell in base.cells}
    pairs = [(cell, others[cell.stem]) for cell in run.cells if cell.stem in others]
    return [(cell, other) for cell, other in pairs if cell.data and cell.data == other.data]


def _difference(run: Run, base: Run, cell: Cell, other: Cell) -> Difference | None:
    told = [set(row.scores) for row in (*cell.rows, *other.rows)]
    metric = main_metric(set.intersection(*told)) if told else None
    if metric is None:
        return None
    mine, its = (question_means(rows, _score_of(metric)) for rows in (cell.rows, other.rows))
    if mine.keys().isdisjoint(its):
        return None
    return Difference(run.label, base.label, cell.task, cell.length, metric, compare(its, mine))
