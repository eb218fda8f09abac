"""What the rows of runs say, in one long frame from which every table, plot and file is made; the difference of two
runs, question by question; and the averages of RULER and BABILong.

The frame has one line for each number, with its 95% interval; ``main`` marks the score that a file is judged by::

    run     file  task  length  data    family  metric           main   mean  low   high  n
    before  50          50      9f2c..  count   missing          False   0.0  nan   nan    0
    before  50          50      9f2c..  score   sub_em           True   25.0  15.0  35.0  16
    before  50          50      9f2c..  cost    turns            False   3.0   3.0   3.0  16
    before  50          50      9f2c..  pass    pass@4           False  50.0  31.2  68.8  16
    before  50          50      9f2c..  turn    memory_tokens/turn_3-4 ...

Families: count (questions with a row, rows, failed, missing, and the percent of documents' tokens that were not read),
score, cost, pass (pass@k of the main metric up to the fewest answers that any question has, where it is 0 or 1
throughout, and best@ the most), turn (memories after the turns of a range, pooled over trajectories: their tokens, and
the percent in which an accepted answer stands), and average (of the tasks of a suite).

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

BABILong's published average is over qa1 to qa5. MemAgent's numbers are of answers behind "the answer is" (TASK_ARGS
answer=the_answer_is), RULER's of whole replies. An average is the plain mean of its tasks, and absent where one of
them has no row. MemAgent rounds each answer's score to two decimals first, which moves its fwe, where scores are
thirds, by at most a third of a point; nothing is rounded here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan, sqrt
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pandas as pd

from ..hooks.metrics import turn_range
from ..rewards.qa_metrics import FIRST_GOLD, MEMAGENT_TASKS, TASKS
from ..system.text import markdown_table
from .results import METRICS, EvalError, Results, Row, read_results, read_rows, scores_of, task_and_length
from .statistics import RESAMPLES, Comparison, Estimate, compare, expected_best, interval, pass_at, pass_sizes

_COST_RESAMPLES = 2000
"""Costs vary little and there are many of them: their intervals are drawn coarser than the scores'."""
COSTS = ("turns", "rounds", "seconds", "document_tokens", "prompt_tokens", "response_tokens", "memory_tokens")
COLUMNS = ["run", "file", "task", "length", "data", "family", "metric", "main", "mean", "low", "high", "n"]
TEN, THIRTEEN, QA_1 = "MemAgent's ten", "RULER's thirteen", "qa_1, first gold"


@dataclass(frozen=True)
class Suite:
    """Tasks that are published together."""

    name: str
    metric: str
    tasks: tuple[str, ...]
    averages: Mapping[str, Sequence[str]]
    """The tasks of each average, the main one first."""
    also: str = ""
    """A further number of the suite."""


_QA = tuple(f"qa{number}" for number in range(1, 6))
SUITES = (Suite("RULER", "ruler", tuple(TASKS), {TEN: MEMAGENT_TASKS, THIRTEEN: tuple(TASKS)}, QA_1),
          Suite("BABILong", "babilong", _QA, {"qa1-qa5": _QA}))


def summary_of(results: Iterable[Results]) -> pd.DataFrame:
    """The frame of all their files; a file without rows yet has its counts alone."""
    lines = []
    for result in results:
        for file, rows in result.rows.items():
            cell = (result.label, file, *task_and_length(file), result.run.data[file])
            judged_by = main_metric(shared_metrics(rows))
            for family, metric, found in _numbers(rows, result.run.questions[file] * result.run.samples):
                main = family == "score" and metric == judged_by
                lines.append((*cell, family, metric, main, found.mean, found.low, found.high, found.n))
    return pd.DataFrame(lines, columns=COLUMNS)


def cells_of(summary: pd.DataFrame) -> Iterator[tuple[str, str, dict[str, Any], Any]]:
    """Of each run and file its lines by metric, and the line of the score that it is judged by; None without one."""
    for (run, file), part in summary.groupby(["run", "file"], sort=False):
        lines = {line.metric: line for line in part.drop_duplicates("metric").itertuples()}
        yield run, file, lines, next((line for line in lines.values() if line.main), None)


def _numbers(rows: Sequence[Row], asked: int) -> Iterator[tuple[str, str, Estimate]]:
    """Every number of one file's rows, of which there are to be ``asked``, with its family and metric."""
    ended, metrics = [row for row in rows if row["failure"] is None], shared_metrics(rows)
    counts = {"questions": len({row["_id"] for row in rows}), "rows": len(rows), "failed": len(rows) - len(ended),
              "missing": max(0, asked - len(rows))}
    for name, count in counts.items():
        yield "count", name, Estimate(count, nan, nan, 0)
    yield from _estimates("count", ended, _not_read)
    yield from _estimates(
        "score", rows, lambda row: {name: 100 * scores_of(row)[name] for name in metrics}, RESAMPLES, full=100.0)
    yield from _estimates(
        "cost", ended, lambda row: dict.fromkeys(COSTS) | row["counts"] | {"seconds": row["seconds"]})
    if judged_by := main_metric(metrics):
        yield from _of_several(rows, judged_by)
    yield from _estimates("turn", ended, lambda row: _by_range(row, "tokens", "memory_tokens", 1))
    yield from _estimates("turn", ended, lambda row: _by_range(row, "gold", "gold_in_memory", 100))


def _estimates(
    family: str, rows: Sequence[Row], told: Callable[[Row], Mapping[str, float | None]],
    resamples: int = _COST_RESAMPLES, full: float | None = None,
) -> Iterator[tuple[str, str, Estimate]]:
    """Mean and interval over questions of each number that rows tell."""
    numbers = pd.DataFrame([told(row) for row in rows], dtype=float)
    means = numbers.groupby([row["_id"] for row in rows], sort=False).mean()
    for name in means:
        if len(known := means[name].dropna()):
            yield family, name, interval(known, full=full, resamples=resamples)


def _not_read(row: Row) -> dict[str, float]:
    """None where no document was read; passages are none."""
    tokens = row["counts"].get("document_tokens", 0)
    known = tokens and "retrieved" not in row["counts"]
    return {"not_read": 100 * row["counts"].get("dropped_tokens", 0) / tokens} if known else {}


def _by_range(row: Row, of: str, called: str, unit: float) -> dict[str, float]:
    """The mean of a memory's number ``of`` in each range of turns, times ``unit``."""
    found: dict[str, list[float]] = defaultdict(list)
    for turn, memory in enumerate(row["memories"], start=1):
        if memory[of] is not None:
            found[f"{called}/{turn_range(turn)}"].append(memory[of])
    return {turns: unit * fmean(numbers) for turns, numbers in found.items()}


def _of_several(rows: Sequence[Row], metric: str) -> Iterator[tuple[str, str, Estimate]]:
    answers: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        answers[row["_id"]].append(scores_of(row)[metric])
    sizes = [len(scores) for scores in answers.values()]
    if max(sizes) == 1:
        return
    if {score for scores in answers.values() for score in scores} <= {0.0, 1.0}:
        for k in pass_sizes(min(sizes)):
            chances = [100 * pass_at(k, len(scores), scores.count(1.0)) for scores in answers.values()]
            yield "pass", f"pass@{k}", interval(chances, full=100.0)
    yield "pass", f"best@{max(sizes)}", interval([100 * expected_best(each) for each in answers.values()], full=100.0)


# --- which metric ---------------------------------------------------------------------------------------------------


def shared_metrics(rows: Sequence[Row]) -> list[str]:
    """The scores that all rows have, the one that the task is judged by first."""
    headlines = {row.get("headline", "") for row in rows} - {""}
    scores = [scores_of(row) for row in rows]
    first = headlines if len(headlines) == 1 else ()
    names = dict.fromkeys((*first, *METRICS, *(name for each in scores for name in each)))
    return [name for name in names if scores and all(name in each for each in scores)]


def main_metric(scores: Iterable[str]) -> str | None:
    """The metric that a task is judged by: RULER's own where it is, else the first."""
    names = dict.fromkeys(scores)
    return "ruler" if "ruler" in names else next(iter(names), None)


# --- question by question -------------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """Two runs in one metric, over the answers that both have."""

    metric: str
    files: list[str]
    found: Comparison
    left_out: int
    """Answers that only one of the two has."""


def answers_of(results: Iterable[Results]) -> pd.DataFrame:
    """A line for each answer, its row as it is written, with the percent that it has in the metric its file is judged
    by."""
    lines = []
    for number, result in enumerate(results):
        for file, rows in result.rows.items():
            if metric := main_metric(shared_metrics(rows)):
                cell = {"number": number, "run": result.label, "file": file, "data": result.run.data[file]}
                lines += [{**row, **cell, "metric": metric, "percent": 100 * scores_of(row)[metric]} for row in rows]
    return pd.DataFrame(lines)


def mean_by_question(answers: pd.DataFrame) -> pd.Series:
    """The percent of each question of each run and file, over its samples."""
    answers = answers.assign(tasks=[task_and_length(file)[0] for file in answers["file"]])
    return answers.groupby(["run", "metric", "tasks", "file", "data", "_id"], sort=False)["percent"].mean()


def over_files(percents: Any) -> Any:
    """The mean of each question of a task over the files that it is in."""
    return percents.groupby(level=["tasks", "_id"], sort=False).mean()


def differences(answers: pd.DataFrame, base: str, run: str, by: Sequence[str]) -> list[Difference]:
    """``run`` minus ``base`` for each of ``by``: ["metric"] takes all files of a metric at once, ["metric", "file"]
    one by one; empty where they have no answer to the same data."""
    pairs = mean_by_question(answers).unstack("run", sort=False)[[base, run]].set_axis(["first", "second"], axis=1)
    found = []
    for _, part in pairs.groupby(level=list(by), sort=False):
        both = part.dropna()
        if len(both):
            shared, asked = over_files(both), part.dropna(how="all").index.droplevel("_id")
            compared = compare(shared["first"].to_dict(), shared["second"].to_dict())
            left_out = int(asked.isin(both.index.droplevel("_id")).sum()) - len(both)
            found.append(Difference(both.index[0][0], list(both.index.unique("file")), compared, left_out))
    return found


# --- averages over tasks --------------------------------------------------------------------------------------------


def averages_of(summary: pd.DataFrame) -> pd.DataFrame:
    """Further lines of the frame, of a suite as their task and family average, for each run and length with at least
    two of the suite's tasks: each task's score in the suite's order, then the averages, and MemAgent's score of
    qa_1."""
    scores = summary[summary["family"] == "score"]
    lines = [line for suite in SUITES
             for (run, length), part in scores[scores["task"].isin(suite.tasks)].groupby(["run", "length"], sort=False)
             for line in _averages(suite, run, length, part)]
    return pd.DataFrame(lines, columns=COLUMNS)


def _averages(suite: Suite, run: str, length: str, part: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    estimates = [Estimate(line.mean, line.low, line.high, line.n) for line in part.itertuples()]
    known = dict(zip(zip(part["task"], part["metric"], strict=True), estimates, strict=True))
    scores = {task: known[task, suite.metric] for task in suite.tasks if (task, suite.metric) in known}
    found = dict(scores)
    for name, tasks in suite.averages.items():
        if scores.keys() >= set(tasks):
            found[name] = average([scores[task] for task in tasks])
    if suite.also and ("qa_1", FIRST_GOLD) in known:
        found[suite.also] = known["qa_1", FIRST_GOLD]
    main = next(iter(suite.averages))
    for name, each in found.items() if len(scores) > 1 else ():
        yield (run, "", suite.name, length, "", "average", name, name == main, each.mean, each.low, each.high, each.n)


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


# --- printed --------------------------------------------------------------------------------------------------------

_WORDS = ("run", "length")
_RANGE = "95% interval"
Lines = Mapping[str, Any]
Columns = Mapping[str, object]


def tables(outputs: Sequence[Path]) -> str:
    """How right the answers are, what else a task measures, what the agents did, pass@k where questions have several
    answers, and the tasks of a suite where there are several. Raises EvalError where a folder has no results."""
    summary = summary_of(read_results(outputs))
    cells, averages = list(cells_of(summary)), averages_of(summary)
    every = [_table((run, file, columns(lines, main)) for run, file, lines, main in cells)
             for columns in (_accuracy, _own, _agent, _passes)]
    for suite in SUITES:
        own = averages[averages["task"] == suite.name].groupby(["run", "length"], sort=False)
        every.append(_table((run, length, _suite(suite, {line.metric: line for line in part.itertuples()}))
                            for (run, length), part in own))
    return "\n\n".join(filter(None, every))


def _table(lines: Iterable[tuple[str, str, Columns]]) -> str:
    """Columns as they come first; a dash where a line has none. Lines without any are left out."""
    found = [(run, length, columns) for run, length, columns in lines if columns]
    names = list(dict.fromkeys(name for _, _, columns in found for name in columns))
    rows = [(run, length, *(columns.get(name, "-") for name in names)) for run, length, columns in found]
    return markdown_table((*_WORDS, *names), rows, _WORDS) if rows else ""


def _accuracy(lines: Lines, main: Any) -> Columns:
    not_read = lines.get("not_read")
    return {
        "n": int(lines["rows"].mean), "failed": int(lines["failed"].mean), "missing": int(lines["missing"].mean),
        "not read": f"{not_read.mean:.1f}%" if not_read else "-", "accuracy": _mean(main), _RANGE: _range(main),
        **{name: _mean(lines.get(name)) for name in ("em", "f1", "sub_em_legacy")},
    }


def _own(lines: Lines, main: Any) -> Columns:
    """The metrics of a task that has several of its own."""
    own = {name: _both(line) for name, line in _family(lines, "score").items() if name not in METRICS}
    return own if len(own) > 1 else {}


def _agent(lines: Lines, main: Any) -> Columns:
    return {name.replace("_", " "): f"{line.mean:.2f}" for name, line in _family(lines, "cost").items()
            if name != "seconds" and not name.endswith("_tokens")}


def _passes(lines: Lines, main: Any) -> Columns:
    """The chance that one of k answers is right, for each k, and the expected best of all."""
    chances = {name: _both(line) for name, line in _family(lines, "pass").items()}
    return {"questions": int(lines["questions"].mean), **chances} if chances else {}


def _suite(suite: Suite, lines: Lines) -> Columns:
    """A column per task, and each average with its interval."""
    columns: dict[str, object] = {name: _mean(lines[name]) for name in suite.tasks if name in lines}
    for number, name in enumerate(suite.averages):  # the blanks are not printed: columns of one name
        columns |= {name: _mean(lines.get(name)), _RANGE + " " * number: _range(lines.get(name))}
    return columns | ({suite.also: _mean(lines.get(suite.also))} if suite.also else {})


def _family(lines: Lines, family: str) -> dict[str, Any]:
    return {name: line for name, line in lines.items() if line.family == family}


def _mean(line: Any) -> str:
    return f"{line.mean:.1f}" if line else "-"


def _range(line: Any) -> str:
    return f"{line.low:.1f} to {line.high:.1f}" if line else "-"


def _both(line: Any) -> str:
    return f"{_mean(line)} ({_range(line)})"


def comparison(first: Path, second: Path) -> str:
    """Second against first at every length that both have, question by question.

    Raises:
        EvalError: they have no question in common, or the data of a length differ.
    """
    results = read_results([first, second])
    base, run = results[0], results[-1]
    for name, digest in run.run.data.items():
        if base.run.data.get(name, digest) != digest:
            raise EvalError(f"{first} and {second} were made from different eval_{name}.json; they cannot be compared")
    rows = []
    for one in differences(answers_of(results), base.label, run.label, ["metric", "file"]):
        found, points = one.found, one.found.difference
        rows.append((*one.files, points.n, one.left_out, f"{found.first:.1f}", f"{found.second:.1f}",
                     f"{points.mean:+z.1f}", _range(points), found.p_text))
    if not rows:
        raise EvalError(f"{first} and {second} have no question in common")
    header = ("length", "questions", "left out", base.label, run.label, "difference", _RANGE, "p")
    return markdown_table(header, rows, _WORDS)


def failures(output: Path, lengths: Sequence[str]) -> list[str]:
    """One line per failed answer."""
    return [
        f"{length}/{row['_id']}" + f"#{row['sample']}" * bool(row["sample"])
        + f": {row['failure']}: {row['failure_message']}"
        for length in lengths
        for row in read_rows(output, length)
        if row["failure"] is not None
    ]
