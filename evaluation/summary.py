"""What the rows of a run say: scores and costs with 95% intervals, memory by turn, and the difference of two runs.

Invariants:
- the unit of every interval is the question: samples of one question are averaged first (``statistics``);
- scores are over ALL rows, failed ones as the evaluation scored them; costs are over the rows that did not fail;
- two runs are subtracted question by question, over the questions that both have;
- percent for scores, plain numbers for costs; what no row can tell is absent, never 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..hooks.metrics import expected_best, pass_at, pass_sizes, turn_range
from .results import METRICS, Cell, Results, Row
from .statistics import RESAMPLES, Comparison, Estimate, by_question, compare, interval

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One run, task and length."""

    run: str
    name: str
    """What the cell's files are called."""
    task: str
    length: str
    data: str
    questions: int
    """That have a row."""
    rows: int
    failed: int
    missing: int
    scores: Mapping[str, Estimate]
    costs: Mapping[str, Estimate]
    """COSTS, as far as a row tells, and whatever else the agent counts."""
    turns: tuple[TurnRange, ...]
    samples: int = 1
    """Most answers that a question has."""
    best: Estimate | None = None
    """best@``samples`` of the main metric (``hooks.metrics``); None with one answer a question."""
    passes: Mapping[int, Estimate] = field(default_factory=dict)
    """pass@k of the main metric by k (``hooks.metrics``), up to the fewest answers that any question has; empty
    with one answer a question, and for a metric that is not 0 or 1 throughout."""
    not_read: Estimate | None = None
    """Percent of a document's tokens that were cut from it before it was read; None where no row can tell."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One cell minus another in one metric over the questions that both have, in points."""

    task: str
    length: str
    metric: str
    found: Comparison
    left_out: int
    """Questions that only one of the two has answered."""


def summarise(run: str, cell: Cell) -> Summary:
    """The summary of one cell of the run that is called ``run``."""
    ended = [row for row in cell.rows if row.failure is None]
    counts = _counts(ended)
    scores = {name: _estimate(cell.rows, _score_of(name), RESAMPLES, full=100.0) for name in shared_metrics(cell.rows)}
    costs = {name: _pooled(counts[name]) for name in counts if counts[name]}
    metric, samples = main_metric(scores), max(Counter(row.question for row in cell.rows).values(), default=1)
    return Summary(
        run=run, name=cell.name, task=cell.task, length=cell.length, data=cell.data,
        questions=len({row.question for row in cell.rows}), rows=len(cell.rows),
        failed=len(cell.rows) - len(ended), missing=cell.missing,
        scores={name: score for name, score in scores.items() if score},
        costs=costs, turns=_turns(ended), samples=samples,
        best=_best(cell.rows, metric) if metric and samples > 1 else None,
        passes=_passes(cell.rows, metric) if metric and samples > 1 else {},
        not_read=_estimate(ended, _not_read),
    )


def shared_metrics(rows: Sequence[Row]) -> list[str]:
    """The scores that all rows have, the one that the task is judged by first."""
    headlines = {row.headline for row in rows} - {""}
    known = (*(headlines if len(headlines) == 1 else ()), *METRICS)
    names = dict.fromkeys((*known, *(name for row in rows for name in row.scores)))
    return [name for name in names if rows and all(name in row.scores for row in rows)]


def main_metric(scores: Iterable[str]) -> str | None:
    """The metric that a task is judged by: RULER's own where it is, else the first."""
    names = dict.fromkeys(scores)
    return "ruler" if "ruler" in names else next(iter(names), None)


def main_metric_of(summaries: Iterable[Summary]) -> str | None:
    return main_metric(name for summary in summaries for name in summary.scores)


def agent_counts(summaries: Sequence[Summary]) -> list[str]:
    """What the agents of these runs count, except tokens: turns, rounds, and whatever else any of them does."""
    every = dict.fromkeys(name for summary in summaries for name in summary.costs)
    return [name for name in every if name != "seconds" and not name.endswith("_tokens")]


def score_names(summaries: Iterable[Summary]) -> list[str]:
    """The scores that a table of them has columns for, METRICS first."""
    every = dict.fromkeys(name for summary in summaries for name in summary.scores)
    return [*(name for name in METRICS if name in every), *(name for name in every if name not in METRICS)]


def count_names(summaries: Iterable[Summary]) -> list[str]:
    """The counts that a table of them has columns for, without COSTS."""
    every = dict.fromkeys(name for summary in summaries for name in summary.costs)
    return [name for name in every if name not in COSTS]


def difference(base: Cell, cell: Cell) -> Difference | None:
    """``cell`` minus ``base``, which are of the same data; None without a metric or a question in common."""
    assert base.data == cell.data, (base.name, cell.name)
    metric = main_metric(shared_metrics((*base.rows, *cell.rows)))
    if metric is None:
        return None
    first, second = (question_scores(rows, metric) for rows in (base.rows, cell.rows))
    if first.keys().isdisjoint(second):
        return None
    return Difference(cell.task, cell.length, metric, compare(first, second), len(first.keys() ^ second.keys()))


def differences(results: Sequence[Results]) -> list[tuple[str, Difference]]:
    """Every later run, by its label, minus the first one, wherever both answered questions of the same data."""
    first = {cell.name: cell for cell in results[0].cells}
    pairs = [(run.label, first[cell.name], cell) for run in results[1:] for cell in run.cells if cell.name in first]
    found = [(label, difference(base, cell)) for label, base, cell in pairs if base.data == cell.data]
    return [(label, each) for label, each in found if each]


def question_means(rows: Iterable[Row], value: Callable[[Row], float | None]) -> dict[str, float]:
    """The mean over the samples of each question, without the rows that cannot tell."""
    values = ((row.question, value(row)) for row in rows)
    return by_question((question, number) for question, number in values if number is not None)


def question_scores(rows: Iterable[Row], metric: str) -> dict[str, float]:
    """The mean score of each question in percent, its samples averaged."""
    return question_means(rows, _score_of(metric))


def _estimate(
    rows: Iterable[Row], value: Callable[[Row], float | None], resamples: int = _COST_RESAMPLES,
    full: float | None = None,
) -> Estimate | None:
    """Mean and interval over questions; None where no row can tell."""
    means = question_means(rows, value)
    return interval(means.values(), full=full, resamples=resamples) if means else None


def _best(rows: Iterable[Row], metric: str) -> Estimate:
    return interval((100 * expected_best(scores) for scores in _answers(rows, metric)), full=100.0)


def _passes(rows: Iterable[Row], metric: str) -> dict[int, Estimate]:
    answers = _answers(rows, metric)
    if any(score not in (0, 1) for scores in answers for score in scores):
        return {}
    counted = [(len(scores), int(sum(scores))) for scores in answers]
    return {
        k: interval((100 * pass_at(k, n, right) for n, right in counted), full=100.0)
        for k in pass_sizes(min(n for n, _ in counted))
    }


def _answers(rows: Iterable[Row], metric: str) -> list[list[float]]:
    """The scores of each question's answers."""
    scores: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        scores[row.question].append(row.scores[metric])
    return list(scores.values())


def _not_read(row: Row) -> float | None:
    """None where no document was read (passages are none), and where counts are said that no document has."""
    tokens = row.counts.get("document_tokens", 0) if "retrieved" not in row.counts else 0
    dropped = row.counts.get("dropped_tokens", 0)
    return 100 * dropped / tokens if tokens and 0 <= dropped <= tokens else None


def _score_of(metric: str) -> Callable[[Row], float]:
    return lambda row: 100 * row.scores[metric]


def _counts(rows: Iterable[Row]) -> dict[str, list[tuple[str, float]]]:
    """What each question's rows tell, by name: COSTS, then what else they count."""
    values: dict[str, list[tuple[str, float]]] = {name: [] for name in COSTS}
    for row in rows:
        for name, number in {**row.counts, "seconds": row.seconds}.items():
            values.setdefault(name, []).append((row.question, number))
    return values


def _turns(rows: Sequence[Row]) -> tuple[TurnRange, ...]:
    tokens: dict[int, list[tuple[str, float]]] = defaultdict(list)
    gold: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for row in rows:
        first, last = 1, 1
        while first <= len(row.memory_tokens):
            sizes = row.memory_tokens[first - 1 : last]
            tokens[first].append((row.question, sum(sizes) / len(sizes)))
            known = [found for found in row.memory_gold[first - 1 : last] if found is not None]
            if known:
                gold[first].append((row.question, 100 * sum(known) / len(known)))
            first, last = last + 1, 2 * last
    return tuple(
        TurnRange(turn_range(first), first, _pooled(each), _pooled(gold[first]) if first in gold else None)
        for first, each in sorted(tokens.items())
    )


def _pooled(values: Iterable[tuple[str, float]]) -> Estimate:
    return interval(by_question(values).values(), resamples=_COST_RESAMPLES)
