"""What a run says, in Markdown: accuracy with its interval, what failed or is missing, what the agent did, RULER's
tasks side by side with their averages, and one run against another.

Accuracy is ``sub_em``, or the task's own score for RULER. ``summary`` says what is a mean of what; the rows of one
length are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..rewards.qa_metrics import TASKS
from ..system.text import markdown_table
from .questions import EvalError
from .results import METRICS, read_results, read_rows
from .statistics import Estimate
from .summary import RulerLine, Summary, differences, main_metric, ruler_lines, summarise

_WORDS = ("run", "length")
_RANGE = "95% interval"
Columns = Mapping[str, object]


def tables(outputs: Sequence[Path]) -> str:
    """How right the answers are, what else a task measures, what the agents did, pass@k where questions have several
    answers, and RULER's tasks where there are several."""
    summaries = summaries_of(outputs)
    every = [_table((s.run, s.name, columns(s)) for s in summaries) for columns in (_accuracy, _own, _agent, _passes)]
    every.append(_table((line.run, line.length, columns) for line, columns in _ruler(summaries)))
    return "\n\n".join(filter(None, every))


def summaries_of(outputs: Sequence[Path]) -> list[Summary]:
    """Raises EvalError where a folder has no results."""
    return [summarise(run.label, cell) for run in read_results(outputs) for cell in run.cells]


def _table(lines: Iterable[tuple[str, str, Columns]]) -> str:
    """Columns as they come first; a dash where a line has none. Lines without any are left out."""
    found = [(run, length, columns) for run, length, columns in lines if columns]
    names = list(dict.fromkeys(name for _, _, columns in found for name in columns))
    rows = [(run, length, *(columns.get(name, "-") for name in names)) for run, length, columns in found]
    return markdown_table((*_WORDS, *names), rows, _WORDS) if rows else ""


def _accuracy(s: Summary) -> Columns:
    metric, most = main_metric(s.scores), max(s.passes, default=0)
    score = s.scores.get(metric or "")
    columns = {
        "n": s.rows, "failed": s.failed, "missing": s.missing,
        "not read": f"{s.not_read.mean:.1f}%" if s.not_read else "-", "accuracy": _mean(score), _RANGE: _range(score),
        **{name: _mean(s.scores.get(name)) for name in ("em", "f1", "sub_em_legacy")},
    }
    if s.best:
        columns["pass@k"] = f"{s.passes[most].mean:.1f} (k={most})" if most > 1 else "-"
        columns["best@k"] = f"{s.best.mean:.1f} (k={s.samples})"
    return columns


def _own(s: Summary) -> Columns:
    """The metrics of a task that has several of its own."""
    own = {name: _both(score) for name, score in s.scores.items() if name not in METRICS}
    return own if len(own) > 1 else {}


def _agent(s: Summary) -> Columns:
    return {name.replace("_", " "): f"{cost.mean:.2f}" for name, cost in s.costs.items()
            if name != "seconds" and not name.endswith("_tokens")}


def _passes(s: Summary) -> Columns:
    """The chance that one of k answers is right, for each k."""
    chances = {f"pass@{k}": _both(chance) for k, chance in s.passes.items()}
    return {"questions": s.questions, **chances} if chances else {}


def _ruler(summaries: Sequence[Summary]) -> Iterable[tuple[RulerLine, Columns]]:
    """A column per task, and the averages of those that MemAgent and RULER average."""
    lines = ruler_lines(summaries)
    tasks = [name for name in TASKS if any(name in line.tasks for line in lines)]
    for line in lines:
        # The blank is not printed: two columns of one name.
        yield line, {
            **{name: _mean(line.tasks.get(name)) for name in tasks},
            "MemAgent's ten": _mean(line.ten), _RANGE: _range(line.ten), "RULER's thirteen": _mean(line.thirteen),
            f"{_RANGE} ": _range(line.thirteen), "qa_1, first gold": _mean(line.first_gold)}


def _mean(estimate: Estimate | None) -> str:
    return f"{estimate.mean:.1f}" if estimate else "-"


def _range(estimate: Estimate | None) -> str:
    return f"{estimate.low:.1f} to {estimate.high:.1f}" if estimate else "-"


def _both(estimate: Estimate) -> str:
    return f"{_mean(estimate)} ({_range(estimate)})"


def comparison(first: Path, second: Path) -> str:
    """Second against first at every length that both have, question by question.

    Raises:
        EvalError: they have no question in common, or the data of a length differ.
    """
    results = read_results([first, second])
    base, run = results[0], results[-1]
    known = {cell.name: cell.data for cell in base.cells}
    for cell in run.cells:
        if known.get(cell.name, cell.data) != cell.data:
            raise EvalError(f"{first} and {second} were made from different eval_{cell.name}.json; they cannot be "
                            "compared")
    rows = []
    for _, one in differences([base, run]):
        found, points = one.found, one.found.difference
        rows.append((*one.cells, points.n, one.left_out, f"{found.first:.1f}", f"{found.second:.1f}",
                     f"{points.mean:+z.1f}", _range(points), found.p_text))
    if not rows:
        raise EvalError(f"{first} and {second} have no question in common")
    header = ("length", "questions", "left out", base.label, run.label, "difference", _RANGE, "p")
    return markdown_table(header, rows, _WORDS)


def failures(output: Path, lengths: Sequence[str]) -> list[str]:
    """One line per failed answer."""
    return [
        f"{length}/{row.question}" + f"#{row.sample}" * bool(row.sample) + f": {row.failure}: {row.failure_message}"
        for length in lengths
        for row in read_rows(output, length)
        if row.failure is not None
    ]
