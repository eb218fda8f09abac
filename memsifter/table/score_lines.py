"""The lines of the sifter's table: one method on one data set, over all questions and over each type of them.

Invariants:
- percent for scores, plain numbers for costs, with 95% bootstrap intervals over questions (``evaluation.statistics``);
- a failed row counts as it stands: a ranking that failed is the order of similarity, an answer that failed is wrong.
  It is in ``failed`` as well, and a row that is not there is in ``missing``;
- ``n`` says how many questions a line's scores are over; those without gold or answers are not among them;
- two methods are compared on the questions that both have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson
from pydantic import TypeAdapter

from ...evaluation.statistics import Estimate, compare, interval
from ...system.errors import MemAgentError
from ...system.files import write_atomically

FILE = "sifter.json"
"""What a folder of results has that a report can show."""
RETRIEVAL, ANSWERS = "retrieval", "answers"
MAIN = {RETRIEVAL: "ndcg@10", ANSWERS: "f1"}
"""The score that methods are compared by."""
_FORM = 1


@dataclass(frozen=True, slots=True)
class Scored:
    """One question, as one method has it."""

    id: str
    kind: str
    scores: Mapping[str, float]
    """Shares; empty where nothing can be said."""
    failed: bool = False
    costs: Mapping[str, float] = field(default_factory=dict)
    """Plain numbers, such as the tokens of the sessions that a chat model was shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All questions of one file, under one method."""

    measure: str
    """RETRIEVAL or ANSWERS."""
    part: str
    """``locomo/test``."""
    method: str
    model: str = ""
    """The chat model, of answers."""
    rows: Sequence[Scored]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    measure: str
    part: str
    method: str
    model: str
    kind: str
    """Of the questions; empty for all."""
    n: int
    failed: int
    missing: int
    scores: Mapping[str, Estimate]
    costs: Mapping[str, Estimate] = field(default_factory=dict)
    """Over the rows that did not fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """A method minus the first one in MAIN, over the questions of both, in points."""

    measure: str
    part: str
    model: str
    method: str
    base: str
    metric: str
    difference: Estimate
    p: float


@dataclass(frozen=True, slots=True)
class SifterScores:
    lines: tuple[Line, ...] = ()
    versus: tuple[Versus, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """What makes the numbers less than they seem, one line each."""


def lines_of(run: Run, expected: int) -> list[Line]:
    """Of all questions, then of each kind, where there are several; ``expected`` rows should be there."""
    by_kind: dict[str, list[Scored]] = {kind: [] for kind in sorted({row.kind for row in run.rows})}
    for row in run.rows:
        by_kind[row.kind].append(row)
    lines = [_line(run, "", run.rows, max(0, expected - len(run.rows)))]
    if len(by_kind) > 1:
        lines += [_line(run, kind or "(none)", rows, 0) for kind, rows in by_kind.items()]
    return lines


def _line(run: Run, kind: str, rows: Sequence[Scored], missing: int) -> Line:
    names = dict.fromkeys(name for row in rows for name in row.scores)
    scores = {
        name: interval((100 * row.scores[name] for row in rows if name in row.scores), full=100.0) for name in names
    }
    ended = [row for row in rows if not row.failed]
    names = dict.fromkeys(name for row in ended for name in row.costs)
    costs = {name: interval(row.costs[name] for row in ended if name in row.costs) for name in names}
    return Line(
        measure=run.measure, part=run.part, method=run.method, model=run.model, kind=kind, missing=missing,
        n=sum(MAIN[run.measure] in row.scores for row in rows), failed=sum(row.failed for row in rows), scores=scores,
        costs=costs,
    )


def versus(runs: Sequence[Run]) -> list[Versus]:
    """Every run minus the first one of its measure, part and chat model."""
    bases: dict[tuple[str, str, str], Run] = {}
    found = []
    for run in runs:
        base = bases.setdefault((run.measure, run.part, run.model), run)
        if base is run:
            continue
        metric = MAIN[run.measure]
        first, second = ({row.id: 100 * row.scores[metric] for row in each.rows if metric in row.scores}
                         for each in (base, run))
        if not first.keys().isdisjoint(second):
            result = compare(first, second)
            found.append(Versus(
                measure=run.measure, part=run.part, model=run.model, method=run.method, base=base.method,
                metric=metric, difference=result.difference, p=result.p,
            ))
    return found


def write_scores(path: Path, scores: SifterScores) -> None:
    content = {"sifter": _FORM, **asdict(scores)}
    write_atomically(path, orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def read_scores(path: Path) -> SifterScores:
    """Raises MemAgentError where the file is none of these, or of another form."""
    try:
        found = orjson.loads(path.read_bytes())
        if found["sifter"] != _FORM:
            raise ValueError(f"form {found['sifter']!r}, expected {_FORM}")
        return TypeAdapter(SifterScores).validate_python(found)
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = " ".join(str(error).split())[:160]
        raise MemAgentError(f"{path}: not the scores of mem-agent sifter-table ({reason}); run it again") from None


def names_of(lines: Iterable[Line], order: Sequence[str]) -> list[str]:
    """The scores that any line has, in this order, others behind."""
    have = dict.fromkeys(name for line in lines for name in line.scores)
    return [*(name for name in order if name in have), *(name for name in have if name not in order)]


def costs_of(lines: Iterable[Line]) -> list[str]:
    """The costs that any line has."""
    return list(dict.fromkeys(name for line in lines for name in line.costs))
