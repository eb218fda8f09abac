"""``index.html``: one file that shows everything, without scripts and without anything from outside.

Invariants:
- every text that comes from a result is escaped by the template engine; images are inlined;
- nothing is wider than the window: tables and plots scroll within themselves.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import orjson
from jinja2 import Environment, StrictUndefined

from ..evaluation.results import Cell, Results, Row
from ..evaluation.summary import Summary, main_metric
from .figures import Plot
from .published import CAVEATS
from .tables import Table
from .wording import named, task_name

_FIRST, _LONGEST = 5, 300


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as the page lists it."""

    where: str
    question: str
    expected: str
    given: str


@dataclass(frozen=True, slots=True)
class Kind:
    """The answers of one run that failed for one reason, or were wrong."""

    run: str
    name: str
    count: int
    first: tuple[Answer, ...]


def render(
    title: str, runs: Sequence[Results], plots: Sequence[Plot],
    tables: Mapping[str, Sequence[Table]], with_published: bool, warned: Sequence[str],
) -> str:
    """The page; ``tables`` by section: sifter, standing, published, accuracy, paired, cost. Without runs the first."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(source).render(
        title=title,
        tables=tables,
        plots={plot.name: plot for plot in plots},
        images={plot.name: b64encode(plot.png).decode() for plot in plots},
        warnings=warned,
        failures=[kind for run in runs for kind in failures_by_kind(run)],
        wrong=[kind for run in runs if (kind := wrong_answers(run))],
        provenance=[(run, *_provenance(run)) for run in runs],
        caveats=CAVEATS if with_published else (),
    )


def warnings(runs: Sequence[Results], summaries: Sequence[Summary]) -> list[str]:
    """What makes the numbers of this report less than they seem."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, groups in conflicting(runs).items():
        names[" | ".join(map(named, groups))].append(name)
    found = [
        f"{', '.join(same)}: not comparable, because the data files differ: {groups}. These runs are shown together, "
        "but never subtracted."
        for groups, same in names.items()
    ]
    for s in summaries:
        where = f"{s.run}, {task_name(s.task)}, {s.length}"
        if not s.rows:
            found.append(f"{where}: no rows yet.")
        elif s.missing:
            found.append(f"{where}: {s.missing} answers are missing; its means are over the {s.rows} that are there.")
        if s.not_read and s.not_read.mean > 0:
            found.append(f"{where}: {s.not_read.mean:.1f}% of its documents' tokens were not read.")
    return found


def conflicting(runs: Sequence[Results]) -> dict[str, list[list[str]]]:
    """The runs by data file, for the task and lengths where they do not all have the same one."""
    by_data: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for cell in run.cells:
            by_data[cell.name][cell.data].append(run.label)
    return {name: list(groups.values()) for name, groups in by_data.items() if len(groups) > 1}


def failures_by_kind(run: Results) -> list[Kind]:
    """The run's failures by kind, most frequent first, with the first ones of each."""
    found: dict[str, list[tuple[Cell, Row]]] = defaultdict(list)
    for cell in run.cells:
        for row in cell.rows:
            if row.failure is not None:
                found[row.failure].append((cell, row))
    kinds = Counter({kind: len(rows) for kind, rows in found.items()})
    return [
        Kind(run.label, kind, count, tuple(_answer(c, r, r.failure_message or "") for c, r in found[kind][:_FIRST]))
        for kind, count in kinds.most_common()
    ]


def wrong_answers(run: Results) -> Kind | None:
    """The first answers at the longest length that score 0 in the main metric, failures apart."""
    cell = [cell for cell in run.cells if cell.rows][-1]
    metric = main_metric(cell.rows[0].scores)
    wrong = [row for row in cell.rows if row.failure is None and metric and not row.scores.get(metric)]
    if not wrong:
        return None
    name = f"{task_name(cell.task)}, {cell.length}"
    return Kind(run.label, name, len(wrong), tuple(_answer(cell, row, row.prediction) for row in wrong[:_FIRST]))


def _answer(cell: Cell, row: Row, given: str) -> Answer:
    where = f"{cell.name}/{row.question}" + (f" sample {row.sample}" if row.sample else "")
    return Answer(where, _short(row.text), _short(" / ".join(row.answers)), _short(given) or "(nothing)")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _provenance(run: Results) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What to show of a run at once, and its longer settings (prompts), which open on demand."""
    facts = [
        ("model", run.run.model), ("mode", run.run.mode), ("folder", str(run.folder)),
        ("newest row", run.written.strftime("%Y-%m-%d %H:%M UTC")),
        ("data", ", ".join(f"{cell.name}: {cell.data}" for cell in run.cells)),
    ]
    texts = [(name, v if isinstance(v, str) else orjson.dumps(v).decode()) for name, v in run.run.settings.items()]
    facts.append(("settings", ", ".join(f"{name}={text}" for name, text in texts if len(text) <= 80)))
    return facts, [(name, text) for name, text in texts if len(text) > 80]
