"""What a run says, in Markdown: accuracy with its interval, what failed or is missing, what the agent did, RULER's
tasks side by side with their averages, and one run against another.

Accuracy is ``sub_em``, or the task's own score for RULER. ``summary`` says what is a mean of what.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..rewards.qa_metrics import TASKS
from ..system.text import markdown_table
from .questions import EvalError
from .results import METRICS, read_results, read_rows
from .summary import QA_1, TEN, THIRTEEN, answers_of, averages_of, cells_of, differences, summary_of

_WORDS = ("run", "length")
_RANGE = "95% interval"
Lines = Mapping[str, Any]
Columns = Mapping[str, object]


def tables(outputs: Sequence[Path]) -> str:
    """How right the answers are, what else a task measures, what the agents did, pass@k where questions have several
    answers, and RULER's tasks where there are several. Raises EvalError where a folder has no results."""
    summary = summary_of(read_results(outputs))
    cells, ruler = list(cells_of(summary)), averages_of(summary)
    every = [_table((run, file, columns(lines, main)) for run, file, lines, main in cells)
             for columns in (_accuracy, _own, _agent, _passes)]
    tasks = [name for name in TASKS if name in set(ruler["metric"])]
    every.append(_table(
        (run, length, _ruler({line.metric: line for line in part.itertuples()}, tasks))
        for (run, length), part in ruler.groupby(["run", "length"], sort=False)))
    return "\n\n".join(filter(None, every))


def _table(lines: Iterable[tuple[str, str, Columns]]) -> str:
    """Columns as they come first; a dash where a line has none. Lines without any are left out."""
    found = [(run, length, columns) for run, length, columns in lines if columns]
    names = list(dict.fromkeys(name for _, _, columns in found for name in columns))
    rows = [(run, length, *(columns.get(name, "-") for name in names)) for run, length, columns in found]
    return markdown_table((*_WORDS, *names), rows, _WORDS) if rows else ""


def _accuracy(lines: Lines, main: Any) -> Columns:
    not_read, passes = lines.get("not_read"), _family(lines, "pass")
    columns = {
        **{name: int(lines[count].mean) for name, count in (("n", "rows"), ("failed", "failed"), ("missing", "missing"))},
        "not read": f"{not_read.mean:.1f}%" if not_read else "-", "accuracy": _mean(main), _RANGE: _range(main),
        **{name: _mean(lines.get(name)) for name in ("em", "f1", "sub_em_legacy")},
    }
    if passes:  # best@ is the last, and pass@1 says nothing more than the accuracy
        *chances, best = passes.items()
        columns["pass@k"] = _at_k(*chances[-1]) if len(chances) > 1 else "-"
        columns["best@k"] = _at_k(*best)
    return columns


def _own(lines: Lines, main: Any) -> Columns:
    """The metrics of a task that has several of its own."""
    own = {name: _both(line) for name, line in _family(lines, "score").items() if name not in METRICS}
    return own if len(own) > 1 else {}


def _agent(lines: Lines, main: Any) -> Columns:
    return {name.replace("_", " "): f"{line.mean:.2f}" for name, line in _family(lines, "cost").items()
            if name != "seconds" and not name.endswith("_tokens")}


def _passes(lines: Lines, main: Any) -> Columns:
    """The chance that one of k answers is right, for each k."""
    chances = {name: _both(line) for name, line in _family(lines, "pass").items() if name.startswith("pass@")}
    return {"questions": int(lines["questions"].mean), **chances} if chances else {}


def _ruler(lines: Lines, tasks: Sequence[str]) -> Columns:
    """A column per task, and the averages of those that MemAgent and RULER average."""
    ten, thirteen = lines.get(TEN), lines.get(THIRTEEN)
    # The blank is not printed: two columns of one name.
    return {**{name: _mean(lines.get(name)) for name in tasks}, TEN: _mean(ten), _RANGE: _range(ten),
            THIRTEEN: _mean(thirteen), f"{_RANGE} ": _range(thirteen), QA_1: _mean(lines.get(QA_1))}


def _family(lines: Lines, family: str) -> dict[str, Any]:
    return {name: line for name, line in lines.items() if line.family == family}


def _at_k(name: str, line: Any) -> str:
    return f"{line.mean:.1f} (k={name.partition('@')[2]})"


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
