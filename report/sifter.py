"""The sifter's scores (``mem-agent sifter-table``) as tables and a plot of the page."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..memsifter.table import (
    ANSWERS,
    HEADINGS,
    MAIN,
    RETRIEVAL,
    TITLES,
    WORDS,
    Line,
    SifterScores,
    table_of,
    versus_table,
)
from .panels import Plot
from .tables import Table
from .themes import COLOURS, GRID, STYLE, png_of, svg_of
from .wording import shorten

PLOT = "sifter"
_NOTES = {
    RETRIEVAL: "Percent, with 95% intervals over the n questions that have gold sessions. A ranking that failed "
               "stands as the order of similarity. valid: replies that name sessions by the rules. kept: gold "
               "sessions that the pre-filter left; kept all: questions of which it left every one.",
    ANSWERS: "Percent, with 95% intervals over the n questions that have an answer. An answer that failed is wrong. "
             "F1 and EM see digits, and words of Chinese.",
}
_AGAINST = "Points, over the questions of both; p of a test that flips the signs of differences."
_COLOURS = {RETRIEVAL: COLOURS[0], ANSWERS: COLOURS[1]}
_WIDE, _NARROW, _DPI, _LINE = 8.0, 4.2, 150, 0.34
Rows = Sequence[tuple[str, SifterScores]]


def sifter_tables(found: Rows) -> list[Table]:
    """Of each results folder, by its name, which stands in the titles where there are several."""
    tables = []
    for label, scores in found:
        ending = f", {shorten(label)}" if len(found) > 1 else ""
        for measure in (RETRIEVAL, ANSWERS):
            for kinds in (False, True):
                lines = _lines(scores, measure, kinds)
                if lines:
                    header, rows = table_of(lines)
                    title = TITLES[measure] + (", by type of question" if kinds else "") + ending
                    tables.append(_table(title, header, rows, _NOTES[measure]))
        if scores.versus:
            header, rows = versus_table(scores.versus)
            tables.append(_table(f"Against the first method{ending}", header, rows, _AGAINST))
    return tables


def sifter_warnings(found: Rows) -> list[str]:
    return [note for _, scores in found for note in scores.notes]


def sifter_plot(found: Rows) -> list[Plot]:
    """Each method's main score on each data set, with intervals: sessions found left, answers right."""
    panels = [
        (measure, [line for _, scores in found for line in _lines(scores, measure, kinds=False)
                   if MAIN[measure] in line.scores])
        for measure in (RETRIEVAL, ANSWERS)
    ]
    panels = [(measure, lines) for measure, lines in panels if lines]
    if not panels:
        return []
    with rc_context(STYLE):
        wide, narrow = _figure(panels, len(panels)), _figure(panels, 1)
        images = png_of(wide), svg_of(wide), svg_of(narrow)
    names = " and ".join(HEADINGS[MAIN[measure]] for measure, _ in panels)
    caption = f"{names} of every method, in percent, with 95% intervals over questions."
    return [Plot(PLOT, "Sessions found and questions answered", caption, *images)]


def _figure(panels: Sequence[tuple[str, Sequence[Line]]], columns: int) -> Figure:
    """Beside each other, or in one column."""
    rows = len(panels) // columns
    tallest = max(len(lines) for _, lines in panels)
    size = (_WIDE if columns > 1 else _NARROW, rows * (1.3 + _LINE * tallest))
    figure = Figure(figsize=size, dpi=_DPI, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (measure, lines) in zip(axes, panels, strict=True):
        _fill(axis, measure, lines)
    return figure


def _fill(axis: Axes, measure: str, lines: Sequence[Line]) -> None:
    parts = {line.part for line in lines}
    for place, line in enumerate(lines):
        score = line.scores[MAIN[measure]]
        spread = [[score.mean - score.low], [score.high - score.mean]]
        axis.errorbar([score.mean], [place], xerr=spread, fmt="o", color=_COLOURS[measure], capsize=3, markersize=5)
    axis.set_yticks(range(len(lines)), [_name(line, len(parts) > 1) for line in lines], fontsize=7)
    axis.set_ylim(len(lines) - 0.5, -0.5)
    axis.set_xlim(-2, 102)
    axis.set_xlabel(f"{HEADINGS[MAIN[measure]]}, percent", fontsize=8)
    axis.set_title(TITLES[measure], fontsize=9)
    axis.tick_params(axis="x", labelsize=7)
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)


def _name(line: Line, with_part: bool) -> str:
    parts = [line.part] * with_part + [line.model] * bool(line.model) + [line.method]
    return "\n".join(_cut(part) for part in parts)


def _cut(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:11]}…{name[-12:]}"


def _lines(scores: SifterScores, measure: str, kinds: bool) -> list[Line]:
    return [line for line in scores.lines if line.measure == measure and bool(line.kind) == kinds]


def _table(title: str, header: tuple[str, ...], rows: Sequence[tuple[str, ...]], note: str) -> Table:
    """Intervals stand on a line of their own."""
    cells = tuple(tuple(cell.replace(" [", "\n[") for cell in row) for row in rows)
    return Table(title, header, cells, note, words=frozenset(WORDS))
