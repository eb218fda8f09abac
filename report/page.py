"""``index.html``: one file that shows everything, without anything from outside; and what it says in words.

Invariants: every text that comes from a result is escaped by the template engine, or is JSON without ``<`` that a
script puts into text nodes; images are inlined; nothing is wider than the window. Without scripts everything is there
except the table of questions, which a CSV beside the page has.
"""

from __future__ import annotations

from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ..evaluation.results import Results
from ..evaluation.summary import Summary, overall, overall_differences
from .data import TrainingRun, task_name
from .tables import WORDS, metric_name, model_title, reading_of, shorten


def render(folder: Path, template: str, **values: Any) -> str:
    """A template of ``folder`` with these values; ``file`` is the text of another file there."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["base64"] = lambda content: b64encode(content).decode()
    environment.globals |= {"file": lambda name: Markup((folder / name).read_text(encoding="utf-8")), "words": WORDS}
    return environment.from_string((folder / template).read_text(encoding="utf-8")).render(**values)


def warnings(runs: Sequence[Results], summaries: Sequence[Summary]) -> list[str]:
    """What makes the numbers of this report less than they seem."""
    by_file: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for cell in run.cells:
            by_file[cell.name][cell.data].append(shorten(run.label))
    unlike: dict[str, list[str]] = defaultdict(list)
    for name, groups in by_file.items():
        if len(groups) > 1:
            unlike[" | ".join(map(", ".join, groups.values()))].append(name)
    found = [
        f"{', '.join(same)}: not comparable, because the data files differ: {groups}. These runs are shown together, "
        "but never subtracted." for groups, same in unlike.items()
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


def provenance(run: Results) -> tuple[str, list[tuple[str, str]], list[tuple[str, str]]]:
    """Its label, what to show of it at once, and its longer settings (prompts), which open on demand."""
    texts = [(name, v if isinstance(v, str) else orjson.dumps(v).decode()) for name, v in run.run.settings.items()]
    model, checkpoint = model_title(run)
    facts = [
        ("model", model), ("checkpoint", checkpoint), ("model folder", run.run.model_name or "–"),
        ("hash of the weights", run.run.model), ("mode", run.run.mode), ("folder", str(run.folder)),
        ("newest row", run.written.strftime("%Y-%m-%d %H:%M UTC")),
        ("data", ", ".join(f"{cell.name}: {cell.data}" for cell in run.cells)),
        ("settings", ", ".join(f"{name}={text}" for name, text in texts if len(text) <= 80)),
    ]
    return run.label, facts, [(name, text) for name, text in texts if len(text) > 80]


# --- headlines ----------------------------------------------------------------------------------------------------


class Headline(NamedTuple):
    """What a reader takes away: one number and one sentence for each comparison, or for the only run."""

    number: str
    sentence: str
    reading: str = ""
    """``better`` or ``worse`` of a comparison whose 95% interval leaves 0 out."""


def headlines(runs: Sequence[Results], trained: Sequence[TrainingRun]) -> list[Headline]:
    """Each evaluation against the first one; how rewards moved only where nothing was evaluated."""
    if not runs:
        return [line for run in trained for line in _of_training(run)]
    if len(runs) > 1:
        return [line for run in runs[1:] for line in _against(runs[0], run)]
    return [Headline(
        f"{each.found.mean:.1f}%",
        f"{shorten(runs[0].label)}: {metric_name(each.metric)} {each.found.mean:.1f}% with a 95% interval of "
        f"{each.found.low:.1f} to {each.found.high:.1f}; {_over(each.found.n, each.cells)}.",
    ) for each in overall(runs[0].cells)]


def _against(base: Results, run: Results) -> Iterator[Headline]:
    first, this = shorten(base.label), shorten(run.label)
    differences = overall_differences(base, run)
    if not differences:
        yield Headline("–", f"{this} and {first} have no answers to the same data: they are shown together, and not "
                       "compared.")
    for each in differences:
        points, p = each.found.difference, each.found.p_text
        reading = reading_of(points)
        clear = reading in ("better", "worse")
        said = f"{this} is {reading} than {first}" if clear else f"{this} and {first}: {reading}"
        yield Headline(
            f"{points.mean:+z.1f}",
            f"{said}: {each.found.first:.1f}% to {each.found.second:.1f}% in {metric_name(each.metric)}, "
            f"{points.mean:+z.1f} points with a 95% interval of {points.low:+z.1f} to {points.high:+z.1f}, "
            f"p {'' if p.startswith('<') else '= '}{p}; {_over(points.n, each.cells)}.",
            reading * clear)


def _over(count: int, cells: Sequence[str]) -> str:
    questions = f"{count:,} question{'s' * (count != 1)}"
    return f"{questions}, each averaged over the {len(cells)} files it is in" if len(cells) > 1 else questions


def _of_training(run: TrainingRun) -> Iterator[Headline]:
    if ends := run.first_and_last("reward"):
        first, last, count = ends
        yield Headline(
            f"{last - first:+z.3f}",
            f"{shorten(run.label)}: mean reward {first:.3f} in the first {count} of {len(run.rollouts)} rollouts, "
            f"{last:.3f} in the last {count}. Rollouts have other questions each, and nothing was evaluated: no "
            "interval.")
