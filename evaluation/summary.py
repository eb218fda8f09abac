"""What the rows of a run say: scores and costs with 95% intervals, memory by turn, a whole evaluation in one number,
the difference of two runs, and RULER's averages.

Invariants:
- the unit of every interval is the question: samples of one question are averaged first (``statistics``). Evaluation
  files of several lengths ask the same questions under the same ids, so over several files a question's scores at the
  lengths are averaged first, and what is resampled is the question with all of them::

      length   q1   q2
      50      100  100
      200       0  100      q1 50, q2 100: mean 75, and draws are of {50, 100}, not of the four scores

- scores are over ALL rows, failed ones as the evaluation scored them; costs are over the rows that did not fail;
- two runs are subtracted question by question, over the answers that both have, and only where the data are the same;
- a metric has a number of its own, never an average over metrics;
- percent for scores, plain numbers for costs; what no row can tell is absent, never 0.

RULER's tasks have averages, as its own table and MemAgent's have them:

================  ==========================================================================================
MemAgent's ten    the eight needle tasks, vt and fwe (its out-of-distribution table, arXiv 2507.02259v1)
RULER's thirteen  those, cwe, qa_1 and qa_2
qa_1, first gold  MemAgent shows qa_1 apart, scored against the first gold (``tasks/qa.py``)
================  ==========================================================================================

MemAgent's numbers are of answers behind "the answer is" (TASK_ARGS answer=the_answer_is), RULER's of whole replies. An
average is the plain mean of its tasks, and absent where one of them has no row. MemAgent rounds each answer's score to
two decimals first, which moves its fwe, where scores are thirds, by at most a third of a point; nothing is rounded
here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean
from typing import Any

import pandas as pd

from ..hooks.metrics import turn_range
from ..rewards.qa_metrics import FIRST_GOLD, MEMAGENT_TASKS, TASKS
from .results import METRICS, Cell, Results, Row
from .statistics import RESAMPLES, Comparison, Estimate, compare, expected_best, interval, pass_at, pass_sizes

_COST_RESAMPLES = 2000
"""Costs vary little and there are many of them: their intervals are drawn coarser than the scores'."""

COSTS = ("turns", "rounds", "seconds", "document_tokens", "prompt_tokens", "response_tokens", "memory_tokens")


@dataclass(frozen=True, slots=True)
class TurnRange:
    """The memories after the turns of one range, pooled over trajectories."""

    name: str
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
    samples: int
    """Most answers that a question has."""
    best: Estimate | None
    """best@``samples`` of the main metric (``statistics``); None with one answer a question."""
    passes: Mapping[int, Estimate]
    """pass@k of the main metric by k (``statistics``), up to the fewest answers that any question has; empty
    with one answer a question, and for a metric that is not 0 or 1 throughout."""
    not_read: Estimate | None
    """Percent of a document's tokens that were cut from it before it was read; None where no row can tell."""


def summarise(run: str, cell: Cell) -> Summary:
    """The summary of one cell of the run that is called ``run``."""
    ended, metrics = [row for row in cell.rows if row.failure is None], shared_metrics(cell.rows)
    told = {name: _estimates(ended, each) for name, each in _TOLD.items()}
    costs, turns = told["costs"], told["turns"]
    answers: dict[str, list[float]] = defaultdict(list)
    for row in cell.rows:
        answers[row.question] += [row.scores[metric] for metric in [main_metric(metrics)] if metric]
    samples = max(Counter(row.question for row in cell.rows).values(), default=1)
    several = [*answers.values()] if metrics and samples > 1 else []
    return Summary(
        run=run, name=cell.name, task=cell.task, length=cell.length, data=cell.data, questions=len(answers),
        rows=len(cell.rows), failed=len(cell.rows) - len(ended), missing=cell.missing,
        scores=_estimates(cell.rows, lambda row: {m: 100 * row.scores[m] for m in metrics}, RESAMPLES, full=100.0),
        costs={name: costs[name] for name in dict.fromkeys([*COSTS, *costs]) if name in costs},
        turns=tuple(TurnRange(name, tokens, told["gold"].get(name)) for name, tokens in turns.items()),
        samples=samples,
        best=interval((100 * expected_best(scores) for scores in several), full=100.0) if several else None,
        passes=_passes(several), not_read=told["not_read"].get("not_read"),
    )


def _estimates(
    rows: Sequence[Row], told: Callable[[Row], Mapping[str, float]], resamples: int = _COST_RESAMPLES,
    full: float | None = None,
) -> dict[str, Estimate]:
    """Mean and interval over questions of each number that rows tell."""
    if not rows:
        return {}
    numbers = pd.DataFrame([told(row) for row in rows], dtype=float)
    means = numbers.groupby([row.question for row in rows], sort=False).mean()
    return {name: interval(means[name].dropna(), full=full, resamples=resamples) for name in means}


def _not_read(row: Row) -> dict[str, float]:
    """None where no document was read (passages are none), and where counts are said that no document has."""
    tokens = row.counts.get("document_tokens", 0) if "retrieved" not in row.counts else 0
    dropped = row.counts.get("dropped_tokens", 0)
    return {"not_read": 100 * dropped / tokens} if tokens and 0 <= dropped <= tokens else {}


def _by_range(row: Row, name: str) -> dict[str, float]:
    """The mean of a memory's number in each range of turns."""
    found: dict[str, list[float]] = defaultdict(list)
    for turn, memory in enumerate(row.memories, start=1):
        if memory[name] is not None:
            found[turn_range(turn)].append(memory[name])
    return {turns: fmean(numbers) for turns, numbers in found.items()}


_TOLD: dict[str, Callable[[Row], Mapping[str, float]]] = {
    "costs": lambda row: {**row.counts, "seconds": row.seconds},
    "turns": lambda row: _by_range(row, "tokens"),
    "gold": lambda row: {turns: 100 * share for turns, share in _by_range(row, "gold").items()},
    "not_read": _not_read,
}


def _passes(answers: Sequence[Sequence[float]]) -> dict[int, Estimate]:
    if not {score for scores in answers for score in scores} <= {0.0, 1.0}:
        return {}
    counted = [(len(scores), scores.count(1.0)) for scores in answers]
    return {k: interval((100 * pass_at(k, n, right) for n, right in counted), full=100.0)
            for k in pass_sizes(min((n for n, _ in counted), default=0))}


# --- which metric ---------------------------------------------------------------------------------------------------


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


# --- several files, and two runs ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Overall:
    """One metric over every length and task that has it, in percent."""

    metric: str
    cells: tuple[str, ...]
    found: Estimate


@dataclass(frozen=True, slots=True)
class Difference:
    """Cells minus those of another run in one metric, over the answers that both have, in points."""

    metric: str
    cells: tuple[str, ...]
    task: str
    """Of the first cell, as is the length."""
    length: str
    found: Comparison
    left_out: int
    """Answers that only one of the two has."""


def overall(cells: Sequence[Cell]) -> list[Overall]:
    """One for each metric by which some cell is judged."""
    judged: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        if metric := main_metric(shared_metrics(cell.rows)):
            judged[metric].append(cell)
    return [
        Overall(metric, tuple(cell.name for cell in found),
                interval(_over(found, [question_scores(cell.rows, metric) for cell in found]), full=100.0))
        for metric, found in judged.items()
    ]


def overall_differences(base: Results, run: Results) -> list[Difference]:
    """``run`` minus ``base``, all files of a metric at once; empty where they have no answer to the same data."""
    return subtract(base.cells, run.cells)


def differences(results: Sequence[Results]) -> list[tuple[str, Difference]]:
    """Every later run, by its label, minus the first one, file by file."""
    return [(run.label, each) for run in results[1:] for cell in run.cells
            for each in subtract(results[0].cells, [cell])]


def subtract(base: Sequence[Cell], cells: Sequence[Cell]) -> list[Difference]:
    """``cells`` minus those of ``base``: one difference for each metric, over what both have answered of the same
    data."""
    first = {(cell.name, cell.data): cell for cell in base}
    judged: dict[str, list[tuple[Cell, pd.DataFrame]]] = defaultdict(list)
    for cell in cells:
        before = first.get((cell.name, cell.data))
        if before and (metric := main_metric(shared_metrics((*before.rows, *cell.rows)))):
            columns = {"first": question_scores(before.rows, metric), "second": question_scores(cell.rows, metric)}
            pairs = pd.DataFrame(columns)
            if pairs.notna().all(axis="columns").any():
                judged[metric].append((cell, pairs))
    found = []
    for metric, each in judged.items():
        compared = [cell for cell, _ in each]
        shared = _over(compared, [pairs.dropna() for _, pairs in each])
        left_out = sum(int(pairs.isna().any(axis="columns").sum()) for _, pairs in each)
        names = tuple(cell.name for cell in compared)
        found.append(Difference(metric, names, compared[0].task, compared[0].length,
                                compare(shared["first"].to_dict(), shared["second"].to_dict()), left_out))
    return found


def question_means(rows: Iterable[Row], value: Callable[[Row], float]) -> dict[str, float]:
    """The mean over the samples of each question."""
    values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        values[row.question].append(value(row))
    return {question: fmean(each) for question, each in values.items()}


def question_scores(rows: Iterable[Row], metric: str) -> pd.Series:
    """The mean score of each question in percent, its samples averaged."""
    return pd.Series(question_means(rows, lambda row: 100 * row.scores[metric]), dtype=float)


def _over(cells: Sequence[Cell], scores: Sequence[pd.Series | pd.DataFrame]) -> Any:
    """The mean of each question of a task over the cells that it is in."""
    return pd.concat(scores, keys=[cell.task for cell in cells]).groupby(level=[0, 1], sort=False).mean()


# --- RULER ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RulerLine:
    """What one run scores at one length, in percent."""

    run: str
    length: str
    tasks: Mapping[str, Estimate]
    """Of the thirteen, in RULER's order, those that have rows."""
    ten: Estimate | None
    thirteen: Estimate | None
    first_gold: Estimate | None
    """MemAgent's score of qa_1."""


def ruler_lines(summaries: Sequence[Summary]) -> tuple[RulerLine, ...]:
    """A line for each run and length with at least two of RULER's tasks, in the order of ``summaries``."""
    found: dict[tuple[str, str], dict[str, Summary]] = defaultdict(dict)
    for summary in summaries:
        if summary.task in TASKS and "ruler" in summary.scores:
            found[summary.run, summary.length][summary.task] = summary
    return tuple(_ruler_line(run, length, cells) for (run, length), cells in found.items() if len(cells) > 1)


def _ruler_line(run: str, length: str, cells: Mapping[str, Summary]) -> RulerLine:
    scores = {name: cells[name].scores["ruler"] for name in TASKS if name in cells}
    ten, thirteen = (average([scores[name] for name in names]) if scores.keys() >= set(names) else None
                     for names in (MEMAGENT_TASKS, TASKS))
    first_gold = cells["qa_1"].scores.get(FIRST_GOLD) if "qa_1" in cells else None
    return RulerLine(run, length, scores, ten, thirteen, first_gold)


def average(scores: Sequence[Estimate]) -> Estimate:
    """The mean of independent estimates, and the questions of all; its interval joins theirs, after Zou and Donner
    (2008, "Construction of confidence limits about effect measures: a general approach")::

        low = mean - sqrt(sum_t (mean_t - low_t)^2) / T        high = mean + sqrt(sum_t (high_t - mean_t)^2) / T

    Worked example: 90 [80, 96] and 100 [97, 100] give 95, low 95 - sqrt(100 + 9) / 2 = 89.8, high 95 + 6 / 2 = 98.
    """
    mean = fmean(score.mean for score in scores)
    below = sqrt(sum((score.mean - score.low) ** 2 for score in scores)) / len(scores)
    above = sqrt(sum((score.high - score.mean) ** 2 for score in scores)) / len(scores)
    return Estimate(mean, mean - below, mean + above, sum(score.n for score in scores))
