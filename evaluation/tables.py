"""What a run says, in Markdown: accuracy with its interval, what failed or is missing, what the agent did, RULER's
tasks side by side with their averages, and one run against another.

Accuracy is ``sub_em``, or the task's own score for RULER. ``summary`` says what is a mean of what; the rows of one
length are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..rewards.qa_metrics import TASKS
from ..system.text import markdown_table
from .questions import EvalError
from .results import METRICS, labels_of, read_cell, read_rows, read_run
from .statistics import Estimate
from .summary import Summary, main_metric, ruler_lines, subtract, summarise

_WORDS = ("run", "length")
_RANGE = "95% interval"


def tables(outputs: Sequence[Path]) -> str:
    """How right the answers are, what else a task measures, what the agents did, pass@k where questions have several
    answers, and RULER's tasks where there are several."""
    summaries = summaries_of(outputs)
    every = ([_accuracy(s) for s in summaries], [_own_scores(s) for s in summaries], [_agent(s) for s in summaries],
             [_passes(s) for s in summaries], _ruler(summaries))
    return "\n\n".join(_table(rows) for rows in every if any(len(row) > 2 for row in rows))


def summaries_of(outputs: Sequence[Path]) -> list[Summary]:
    summaries: list[Summary] = []
    for label, output in zip(labels_of([output.resolve() for output in outputs]), outputs, strict=True):
        run = read_run(output)
        found = [summarise(label, read_cell(output, run, name)) for name in run.lengths]
        if not any(summary.rows for summary in found):
            raise EvalError(f"{output}: no results; run the evaluation first")
        summaries += found
    return summaries


Line = Mapping[str, object]
"""What a row says, by column."""


def _table(rows: Sequence[Line]) -> str:
    """Columns as they come first; a dash where a row has none."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return markdown_table(columns, [[row.get(name, "-") for name in columns] for row in rows if len(row) > 2], _WORDS)


def _accuracy(s: Summary) -> Line:
    metric, most = main_metric(s.scores), max(s.passes, default=0)
    score = s.scores.get(metric or "")
    row = {
        "run": s.run, "length": s.name, "n": s.rows, "failed": s.failed, "missing": s.missing,
        "not read": f"{s.not_read.mean:.1f}%" if s.not_read else "-", "accuracy": _mean(score), _RANGE: _range(score),
        **{name: _mean(s.scores.get(name)) for name in ("em", "f1", "sub_em_legacy")},
    }
    if s.best:
        row["pass@k"] = f"{s.passes[most].mean:.1f} (k={most})" if most > 1 else "-"
        row["best@k"] = f"{s.best.mean:.1f} (k={s.samples})"
    return row


def _own_scores(s: Summary) -> Line:
    """The metrics of a task that has several of its own."""
    own = [name for name in s.scores if name not in METRICS]
    return _named(s, {name: _both(s.scores[name]) for name in own if len(own) > 1})


def _agent(s: Summary) -> Line:
    counts = [name for name in s.costs if name != "seconds" and not name.endswith("_tokens")]
    return _named(s, {name.replace("_", " "): f"{s.costs[name].mean:.2f}" for name in counts})


def _passes(s: Summary) -> Line:
    """The chance that one of k answers is right, for each k."""
    chances = {f"pass@{k}": _both(chance) for k, chance in s.passes.items()}
    return _named(s, {"questions": s.questions, **chances} if chances else {})


def _named(s: Summary, columns: Line) -> Line:
    return {"run": s.run, "length": s.name, **columns}


def _ruler(summaries: Sequence[Summary]) -> list[Line]:
    """A column per task, and the averages of those that MemAgent and RULER average."""
    lines = ruler_lines(summaries)
    tasks = [name for name in TASKS if any(name in line.tasks for line in lines)]
    return [
        {"run": line.run, "length": line.length, **{name: _mean(line.tasks.get(name)) for name in tasks},
         "MemAgent's ten": _mean(line.ten), _RANGE: _range(line.ten),
         # Printed without the blank: two columns of one name.
         "RULER's thirteen": _mean(line.thirteen), f"{_RANGE} ": _range(line.thirteen),
         "qa_1, first gold": _mean(line.first_gold)}
        for line in lines
    ]


def _mean(estimate: Estimate | None) -> str:
    return f"{estimate.mean:.1f}" if estimate else "-"


def _range(estimate: Estimate | None) -> str:
    return f"{estimate.low:.1f} to {estimate.high:.1f}" if estimate else "-"


def _both(estimate: Estimate | None) -> str:
    return f"{_mean(estimate)} ({_range(estimate)})" if estimate else "-"


def comparison(first: Path, second: Path) -> str:
    """Second against first at every length that both have, question by question.

    Raises:
        EvalError: they have no length in common, or the data of one differ.
    """
    base, run = read_run(first), read_run(second)
    shared = [name for name in base.lengths if name in run.data]
    if not shared:
        raise EvalError(f"{first} and {second} have no length in common")
    labels = labels_of([first.resolve(), second.resolve()])
    rows = []
    for name in shared:
        if base.data[name] != run.data[name]:
            raise EvalError(f"{first} and {second} were made from different eval_{name}.json; they cannot be compared")
        cells = read_cell(first, base, name), read_cell(second, run, name)
        for one in subtract([cells[0]], [cells[1]]):
            found = one.found
            rows.append((name, found.difference.n, one.left_out, f"{found.first:.1f}", f"{found.second:.1f}",
                         f"{found.difference.mean:+z.1f}", _range(found.difference), found.p_text))
    if not rows:
        raise EvalError(f"{first} and {second} have no question in common yet; evaluate first")
    return markdown_table(("length", "questions", "left out", *labels, "difference", _RANGE, "p"), rows, _WORDS)


def failures(output: Path, lengths: Sequence[str]) -> list[str]:
    """One line per failed answer."""
    return [
        f"{length}/{row.question}" + f"#{row.sample}" * bool(row.sample) + f": {row.failure}: {row.failure_message}"
        for length in lengths
        for row in read_rows(output, length)
        if row.failure is not None
    ]
