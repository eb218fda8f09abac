"""``index.html``: one file that shows everything, without anything from outside.

Invariants:
- every text that comes from a result is escaped by the template engine, or is JSON without ``<`` that a script puts
  into text nodes; images are inlined;
- nothing is wider than the window: tables scroll within themselves, plots have a form for a narrow one;
- without scripts everything is there but the table of questions, which a CSV beside the page has.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import orjson
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ..evaluation.results import Cell, Results, Row
from ..evaluation.summary import Summary, main_metric, shared_metrics
from .headline import Headline
from .panels import Plot
from .published import CAVEATS
from .questions import QuestionRow, questions_json
from .tables import Table
from .training_run import TrainingRun
from .wording import model_title, named, task_name

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a page is made of."""

    title: str
    headlines: Sequence[Headline]
    runs: Sequence[Results]
    trained: Sequence[TrainingRun]
    plots: Sequence[Plot]
    tables: Mapping[str, Sequence[Table]]
    """By section: training, sifter, standing, published, accuracy, paired, cost."""
    questions: Sequence[QuestionRow]
    viewers: Mapping[Path, str]
    """Addresses of pages of trajectories, by folder."""
    with_published: bool
    warned: Sequence[str]


def render(content: Content) -> str:
    """The page."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    runs, plots = content.runs, content.plots
    data, shown = questions_json(content.questions, runs, content.viewers)
    return environment.from_string(_file("page.html.jinja")).render(
        title=content.title,
        headlines=content.headlines,
        style=Markup(_file("web/page.css")),
        theme_script=Markup(_file("web/theme.js")),
        questions_script=Markup(_file("web/questions.js")),
        question_data=Markup(data),
        left_out=len(content.questions) - shown,
        files=list(dict.fromkeys(row.cell for row in content.questions)),
        linked=any(run.folder in content.viewers for run in runs),
        training=[(run.label, content.viewers.get(run.folder, "")) for run in content.trained],
        tables=content.tables,
        plots={plot.name: plot for plot in plots},
        images={
            plot.name: {"wide": b64encode(plot.wide).decode(), "narrow": b64encode(plot.narrow).decode()}
            for plot in plots
        },
        warnings=content.warned,
        failures=[kind for run in runs for kind in failures_by_kind(run)],
        wrong=[kind for run in runs if (kind := wrong_answers(run))],
        provenance=[(run, *_provenance(run)) for run in runs],
        caveats=CAVEATS if content.with_published else (),
    )


def _file(name: str) -> str:
    assert __package__
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


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
    metric = main_metric(shared_metrics(cell.rows))
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
        *zip(("model", "checkpoint"), model_title(run), strict=True),
        ("model folder", run.run.model_name or "–"), ("hash of the weights", run.run.model),
        ("mode", run.run.mode), ("folder", str(run.folder)),
        ("newest row", run.written.strftime("%Y-%m-%d %H:%M UTC")),
        ("data", ", ".join(f"{cell.name}: {cell.data}" for cell in run.cells)),
    ]
    texts = [(name, v if isinstance(v, str) else orjson.dumps(v).decode()) for name, v in run.run.settings.items()]
    facts.append(("settings", ", ".join(f"{name}={text}" for name, text in texts if len(text) <= 80)))
    return facts, [(name, text) for name, text in texts if len(text) > 80]
