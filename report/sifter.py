"""The sifter's scores (``mem-agent sifter-table``) as tables and a plot of the page."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..sifter.table.score_lines import ANSWERS, MAIN, RETRIEVAL, Line, SifterScores
from ..sifter.table.sifter_table import HEADINGS, TITLES, WORDS, table_of, versus_table
from .figures import Plot
from .tables import Table
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
_COLOURS = {RETRIEVAL: "#0072B2", ANSWERS: "#D55E00"}
_WIDTH, _DPI, _LINE = 8.0, 150, 0.34
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


@rc_context({"text.parse_math": False})  # a model may be called $x$
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
    tallest = max(len(lines) for _, lines in panels)
    figure = Figure(figsize=(_WIDTH, 1.3 + _LINE * tallest), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    for axis, (measure, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _fill(axis, measure, lines)
    content = BytesIO()
    figure.savefig(content, format="png")
    names = " and ".join(HEADINGS[MAIN[measure]] for measure, _ in panels)
    caption = f"{names} of every method, in percent, with 95% intervals over questions."
    return [Plot(PLOT, "Sessions found and questions answered", caption, content.getvalue())]


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
    axis.grid(axis="x", color="#dddddd", linewidth=0.6)
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
