"""What a run says, in Markdown: accuracy with its interval, what failed or is missing, what the agent did, RULER's
tasks side by side with their averages, and one run against another.

Accuracy is ``sub_em``, or the task's own score for RULER. ``summary`` says what is a mean of what; the rows of one
length are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..system.text import markdown_table
from .questions import EvalError
from .results import METRICS, labels_of, read_cell, read_rows, read_run
from .ruler_average import RulerLine, ruler_lines, tasks_of
from .statistics import Estimate
from .summary import (
    Difference,
    Summary,
    agent_counts,
    difference,
    main_metric,
    score_names,
    summarise,
)

_FURTHER = ("em", "f1", "sub_em_legacy")
_WORDS = ("run", "length")


def tables(outputs: Sequence[Path]) -> str:
    """How right the answers are, what else a task measures, what the agents did, pass@k where questions have several
    answers, and RULER's tasks where there are several."""
    summaries = summaries_of(outputs)
    shown = [_accuracy_table(summaries), _agent_table(summaries)]
    if names := _own_scores(summaries):
        shown.insert(1, _own_table(summaries, names))
    if pass_sizes_of(summaries):
        shown.append(_pass_table(summaries))
    if lines := ruler_lines(summaries):
        shown.append(_ruler_table(lines))
    return "\n\n".join(shown)


def summaries_of(outputs: Sequence[Path]) -> list[Summary]:
    summaries: list[Summary] = []
    for label, output in zip(labels_of([output.resolve() for output in outputs]), outputs, strict=True):
        run = read_run(output)
        found = [summarise(label, read_cell(output, run, name)) for name in run.lengths]
        if not any(summary.rows for summary in found):
            raise EvalError(f"{output}: no results; run the evaluation first")
        summaries += found
    return summaries


def _accuracy_table(summaries: Sequence[Summary]) -> str:
    sampled = max((s.samples for s in summaries), default=1) > 1
    header = ["run", "length", "n", "failed", "missing", "not read", "accuracy", "95% interval", *_FURTHER]
    rows = [[s.run, s.name, s.rows, s.failed, s.missing, percent(s.not_read), *_scores(s)] for s in summaries]
    if sampled:
        header += ["pass@k", "best@k"]
        for row, s in zip(rows, summaries, strict=True):
            most = max(s.passes, default=0)
            row.append(f"{s.passes[most].mean:.1f} (k={most})" if most > 1 else "-")
            row.append(f"{s.best.mean:.1f} (k={s.samples})" if s.best else "-")
    return markdown_table(header, rows, _WORDS)


def _own_scores(summaries: Sequence[Summary]) -> list[str]:
    """The metrics of tasks that have several of their own, beside the pack's common ones."""
    shown = {*score_names(summaries)} - {*METRICS}
    own = [[name for name in s.scores if name in shown] for s in summaries]
    return list(dict.fromkeys(name for names in own if len(names) > 1 for name in names))


def _own_table(summaries: Sequence[Summary], names: Sequence[str]) -> str:
    """One line per run and length: a column for each of these metrics, with its interval."""
    rows = [
        (s.run, s.name, *(_mean_range(s.scores.get(name)) for name in names))
        for s in summaries if not s.scores.keys().isdisjoint(names)
    ]
    return markdown_table((*_WORDS, *names), rows, _WORDS)


def _pass_table(summaries: Sequence[Summary]) -> str:
    """One line per run and length: the chance that one of k answers is right, with its interval, for each k."""
    sizes = pass_sizes_of(summaries)
    rows = [
        (s.run, s.name, s.questions, *(_mean_range(s.passes.get(k)) for k in sizes)) for s in summaries if s.passes
    ]
    return markdown_table((*_WORDS, "questions", *(f"pass@{k}" for k in sizes)), rows, _WORDS)


def pass_sizes_of(summaries: Sequence[Summary]) -> list[int]:
    """Every k of which one of them has pass@k."""
    return sorted({k for s in summaries for k in s.passes})


def percent(share: Estimate | None) -> str:
    """A share, or a dash where nobody can tell."""
    return f"{share.mean:.1f}%" if share else "-"


def _scores(summary: Summary) -> list[str]:
    metric = main_metric(summary.scores)
    accuracy = [f"{summary.scores[metric].mean:.1f}", _range(summary.scores[metric])] if metric else ["-", "-"]
    return accuracy + [f"{summary.scores[name].mean:.1f}" if name in summary.scores else "-" for name in _FURTHER]


def _agent_table(summaries: Sequence[Summary]) -> str:
    names = agent_counts(summaries)
    rows = [
        (s.run, s.name, *(f"{s.costs[name].mean:.2f}" if name in s.costs else "-" for name in names))
        for s in summaries
    ]
    return markdown_table((*_WORDS, *(name.replace("_", " ") for name in names)), rows, _WORDS)


def _ruler_table(lines: Sequence[RulerLine]) -> str:
    """One line per run and length: a column per task, and the averages of those that MemAgent and RULER average."""
    tasks = tasks_of(lines)
    averages = ("MemAgent's ten", "95% interval", "RULER's thirteen", "95% interval", "qa_1, first gold")
    rows = [
        (line.run, line.length, *(_mean(line.tasks.get(name)) for name in tasks), *_mean_and_range(line.ten),
         *_mean_and_range(line.thirteen), _mean(line.first_gold))
        for line in lines
    ]
    return markdown_table((*_WORDS, *tasks, *averages), rows, _WORDS)


def _mean(estimate: Estimate | None) -> str:
    return f"{estimate.mean:.1f}" if estimate else "-"


def _mean_and_range(estimate: Estimate | None) -> tuple[str, str]:
    return _mean(estimate), _range(estimate) if estimate else "-"


def _mean_range(estimate: Estimate | None) -> str:
    return f"{estimate.mean:.1f} ({_range(estimate)})" if estimate else "-"


def _range(estimate: Estimate) -> str:
    return f"{estimate.low:.1f} to {estimate.high:.1f}"


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
    header = ("length", "questions", "left out", *labels, "difference", "95% interval", "p")
    rows = []
    for name in shared:
        if base.data[name] != run.data[name]:
            raise EvalError(f"{first} and {second} were made from different eval_{name}.json; they cannot be compared")
        found = difference(read_cell(first, base, name), read_cell(second, run, name))
        if found is None:
            raise EvalError(f"{first} and {second} have no question of length {name} in common yet; evaluate first")
        rows.append((name, *_difference_cells(found)))
    return markdown_table(header, rows, _WORDS)


def _difference_cells(difference: Difference) -> tuple[object, ...]:
    found = difference.found
    means = (f"{found.first:.1f}", f"{found.second:.1f}", f"{found.difference.mean:+z.1f}")
    return found.difference.n, difference.left_out, *means, _range(found.difference), found.p_text


def failures(output: Path, lengths: Sequence[str]) -> list[str]:
    """One line per failed answer."""
    return [
        f"{length}/{row.question}" + f"#{row.sample}" * bool(row.sample) + f": {row.failure}: {row.failure_message}"
        for length in lengths
        for row in read_rows(output, length)
        if row.failure is not None
    ]
