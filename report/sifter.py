"""The sifter's scores (``mem-agent sifter-table``) as tables and a plot of the page."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from ..memsifter.table import ANSWERS, MAIN, RETRIEVAL, TITLES, Line, SifterScores, table_of
from .plots import COLOURS, Draw, Plot, bars, plot
from .tables import Table, shorten

_NOTES = {
    RETRIEVAL: "Percent, with 95% intervals over the n questions that have gold sessions. A ranking that failed "
               "stands as the order of similarity. valid: replies that name sessions by the rules. kept: gold "
               "sessions that the pre-filter left.",
    ANSWERS: "Percent, with 95% intervals over the n questions that have an answer. An answer that failed is wrong. "
             "F1 and EM see digits, and words of Chinese.",
}
Found = Sequence[tuple[str, SifterScores]]


def sifter_tables(found: Found) -> list[Table]:
    """Of each results folder, by its name, which stands in the titles where there are several; intervals on a line of
    their own."""
    tables = []
    for label, scores in found:
        ending = f", {shorten(label)}" if len(found) > 1 else ""
        made = [(TITLES[measure], table_of(lines), note) for measure, note in _NOTES.items()
                if (lines := _lines(scores, measure))]
        tables += [Table(title + ending, header, [[cell.replace(" [", "\n[") for cell in row] for row in rows], note)
                   for title, (header, rows), note in made]
    return tables


def _lines(scores: SifterScores, measure: str) -> list[Line]:
    return [line for line in scores.lines if line.measure == measure]


def sifter_plot(found: Found) -> list[Plot]:
    """Each method's main score on each data set, with intervals: sessions found left, answers right."""
    shown = {measure: [line for _, scores in found for line in _lines(scores, measure)
                       if MAIN[measure] in line.scores] for measure in _NOTES}
    shown = {measure: lines for measure, lines in shown.items() if lines}
    names = " and ".join(MAIN[measure] for measure in shown)
    tallest = max(map(len, shown.values()), default=0)
    return plot("sifter", "Sessions found and questions answered",
                f"{names} of every method, in percent, with 95% intervals over questions.",
                [_methods(measure, lines) for measure, lines in shown.items()], 1.3 + 0.34 * tallest)


def _methods(measure: str, lines: Sequence[Line]) -> Draw:
    several = len({line.part for line in lines}) > 1

    def draw(axis: Axes) -> None:
        for place, line in enumerate(lines):
            score = line.scores[MAIN[measure]]
            axis.errorbar([score.mean], [place], xerr=bars([score]), fmt="o", color=COLOURS[measure == ANSWERS],
                          capsize=3, markersize=5)
        names = ("\n".join(shorten(name, 24) for name in (line.part * several, line.model, line.method) if name)
                 for line in lines)
        axis.set_yticks(range(len(lines)), list(names), fontsize=7)
        axis.invert_yaxis()
        axis.set(title=TITLES[measure], xlabel=f"{MAIN[measure]}, percent", xlim=(-2, 102))

    return draw
