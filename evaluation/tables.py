"""What a run says, in Markdown: accuracy with its interval, what failed or is missing, what the agent did, and one run
against another.

Accuracy is ``sub_em``, or the task's own score for RULER. Means are over ALL rows, failed ones as 0, a question's
samples averaged first; ``missing`` counts the answers that the run was to give and has no row of. Intervals are over
questions (``statistics``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from .questions import EvalError
from .result_store import Row, read_rows, read_run
from .statistics import Comparison, Estimate, by_question, compare, interval

METRICS = ("sub_em", "em", "f1", "sub_em_legacy")
ACCURACY = ("ruler", "sub_em")
_FURTHER = ("em", "f1", "sub_em_legacy")


@dataclass(frozen=True, slots=True)
class Summary:
    """One run at one length; shares of 1."""

    length: str
    accuracy: Estimate
    n: int
    failed: int
    missing: int
    means: dict[str, float]
    """Of every score that all rows have."""
    did: dict[str, float]
    """Means of what the agent counts, but for tokens, over the questions that did not fail."""


def lengths_of(output: Path) -> list[str]:
    """The run's lengths in order of size."""
    return sorted(read_run(output)["data"], key=_size)


def _size(length: str) -> tuple[str, int, str]:
    task, _, number = length.rpartition("_")
    return (task, int(number), "") if number.isdecimal() else (length, 0, "")


def summarise(output: Path, length: str) -> Summary | None:
    """None where the run has no row of the length yet."""
    rows = read_rows(output, length)
    if not rows:
        return None
    names = [name for name in (*METRICS, "ruler") if all(name in row for row in rows)]
    return Summary(
        length=length,
        accuracy=interval(_by_question(rows, ACCURACY).values(), full=1.0),
        n=len(rows),
        failed=sum(row["failure"] is not None for row in rows),
        missing=max(0, wanted(output, length) - len(rows)),
        means={name: fmean(_by_question(rows, (name,)).values()) for name in names},
        did=_did(rows),
    )


def wanted(output: Path, length: str) -> int:
    """The answers that the run is to have."""
    run = read_run(output)
    return run.get("questions", {}).get(length, 0) * run.get("samples", 1)


def _by_question(rows: Sequence[Row], names: Sequence[str]) -> dict[str, float]:
    """Each question's mean of the first of these scores that its rows have."""
    return by_question((row["_id"], next(row[name] for name in names if name in row)) for row in rows)


def table(outputs: Sequence[Path]) -> str:
    """How right the answers are: one line per run and length."""
    return _accuracy(_all(outputs))


def doings(outputs: Sequence[Path]) -> str:
    """What the agents did: one line per run and length, a column per thing that any of them counts.

    Means over the questions that did not fail, a question's samples averaged first. Tokens are left to the report.
    """
    return _doings(_all(outputs))


def tables(outputs: Sequence[Path]) -> str:
    """Both, from one reading of the rows."""
    found = _all(outputs)
    return f"{_accuracy(found)}\n\n{_doings(found)}"


_Found = Sequence[tuple[Path, str, Summary | None]]
"""A run, a length, and what its rows say; None where it has none yet."""


def _all(outputs: Sequence[Path]) -> _Found:
    found = [(output, length, summarise(output, length)) for output in outputs for length in lengths_of(output)]
    for output in outputs:
        if not any(summary for run, _, summary in found if run == output):
            raise EvalError(f"{output}: no results; run the evaluation first")
    return found


def _accuracy(found: _Found) -> str:
    lines = _head("run", "length", "n", "failed", "missing", "accuracy", "95% interval", *_FURTHER)
    lines += [_line(run.name, length, *_cells(summary, wanted(run, length))) for run, length, summary in found]
    return "\n".join(lines)


def _doings(found: _Found) -> str:
    told = [(run.name, length, summary.did if summary else {}) for run, length, summary in found]
    names = dict.fromkeys(name for _, _, did in told for name in did)
    lines = _head("run", "length", *(name.replace("_", " ") for name in names))
    for run, length, did in told:
        lines.append(_line(run, length, *(f"{did[name]:.2f}" if name in did else "-" for name in names)))
    return "\n".join(lines)


def _did(rows: Sequence[Row]) -> dict[str, float]:
    ended = [row for row in rows if row["failure"] is None and row.get("counts")]
    names = dict.fromkeys(("turns", "rounds", *(name for row in ended for name in row["counts"])))
    told = {
        name: by_question((row["_id"], row["counts"][name]) for row in ended if name in row["counts"])
        for name in names if not name.endswith("_tokens")
    }
    return {name: fmean(means.values()) for name, means in told.items() if means}


def _cells(summary: Summary | None, missing: int) -> list[str]:
    if summary is None:
        return ["0", "0", str(missing), *["-"] * (2 + len(_FURTHER))]
    further = [f"{100 * summary.means[name]:.1f}" if name in summary.means else "-" for name in _FURTHER]
    counts = [str(summary.n), str(summary.failed), str(summary.missing)]
    return [*counts, f"{100 * summary.accuracy.mean:.1f}", _range(summary.accuracy), *further]


def _range(estimate: Estimate) -> str:
    return f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}"


def _head(*names: str) -> list[str]:
    return [_line(*names), "|---" * len(names) + "|"]


def _line(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |"


# --- two runs -----------------------------------------------------------------------------------------------------


def comparison(first: Path, second: Path) -> str:
    """Second against first at every length that both have, question by question.

    Raises:
        EvalError: they have no length in common, or the data of one differ.
    """
    lines = _head("length", "questions", "left out", first.name, second.name, "difference", "95% interval", "p")
    shared = [length for length in lengths_of(first) if length in lengths_of(second)]
    if not shared:
        raise EvalError(f"{first} and {second} have no length in common")
    for length in shared:
        left_out, found = _compare(first, second, length)
        means = (f"{100 * found.first:.1f}", f"{100 * found.second:.1f}", f"{100 * found.difference.mean:+.1f}")
        p = "< 0.001" if found.p < 0.001 else f"{found.p:.3f}"
        lines.append(_line(length, found.difference.n, left_out, *means, _range(found.difference), p))
    return "\n".join(lines)


def _compare(first: Path, second: Path, length: str) -> tuple[int, Comparison]:
    """With the number of questions that only one of the two has answered."""
    if read_run(first)["data"][length] != read_run(second)["data"][length]:
        raise EvalError(f"{first} and {second} were made from different eval_{length}.json; they cannot be compared")
    ours, theirs = (_by_question(read_rows(output, length), ACCURACY) for output in (first, second))
    if ours.keys().isdisjoint(theirs):
        raise EvalError(f"{first} and {second} have no question of length {length} in common yet; evaluate first")
    return len(ours.keys() ^ theirs.keys()), compare(ours, theirs)


def failures(output: Path, lengths: Sequence[str]) -> list[str]:
    """One line per failed answer."""
    return [
        f"{length}/{row['_id']}" + f"#{row['sample']}" * bool(row.get("sample"))
        + f": {row['failure']}: {row['failure_message']}"
        for length in lengths
        for row in read_rows(output, length)
        if row["failure"]
    ]
