"""Panels of lines, side by side in a wide figure and below each other in a narrow one.

Invariants:
- lines of equal values lie on each other and are all seen, up to nine of them: below is a wide one with large
  markers, above it lie thinner ones, dashed and dotted. Only bars of intervals are set beside each other;
- runs of one report have the same colour, dash and marker in every plot, and the first 12 differ without colours;
- a value that cannot be drawn is a gap, which the caption tells; it does not move an axis. A point between two gaps
  has a marker, also on a line without: a line of one point is none;
- names never lie on the data: the legend is below, in as many columns as its longest name allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, nan
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..evaluation.statistics import Estimate
from .drawable import LARGEST, is_drawable
from .themes import COLOURS, GRID, STYLE, png_of, svg_of
from .wording import shorten

_DASHES: tuple[Any, ...] = ("-", (0, (4, 2.5)), (0, (1, 1.6)))
_MARKERS = ("o", "s", "^", "D")
_WIDTHS, _SIZES = (3.6, 2.2, 1.2), (9.0, 6.0, 3.4)
_DOTS = {"marker": "o", "linestyle": ""}
_THINNER = 0.7
"""What the lines of a dash are, from one that has it to the next."""
_WIDE, _NARROW, _DPI, _LINE = 8.0, 4.2, 150, 0.24
_MOST, _TICKS = 60, 16
"""Panels of a plot, and names on an axis: hundreds cannot be read, and take minutes and gigabytes to draw."""
_LETTERS, _NAME = 12.5, 12
"""Letters in an inch, and those of a name on an axis: what is much longer leaves the axis no room."""


Point = tuple[float, float, Estimate | None]


@dataclass(frozen=True, slots=True)
class Plot:
    name: str
    """File name without ``.png``."""
    title: str
    caption: str
    png: bytes
    wide: bytes
    """SVG for a window, light or dark as the page is; ``narrow`` is for a telephone."""
    narrow: bytes


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of one panel: estimates by position, or bare numbers where there is no interval."""

    label: str
    """Its name in the legend; empty: it has none."""
    style: Mapping[str, Any]
    points: Sequence[Point]
    aside: float = 1.0
    """Factor on the position of its bars, which would hide those of other lines."""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    x_label: str
    y_label: str
    ticks: Mapping[float, str] | None
    """Positions on a logarithmic axis of base 2 and their names; None: an even axis of whole numbers."""
    curves: Sequence[Curve]
    scale: str
    """How the y axis runs: percent, log, from 0, or auto."""

    @property
    def points(self) -> list[Point]:
        return [point for curve in self.curves for point in curve.points]

    def with_gaps(self) -> Panel:
        """Without the lines of which nothing can be drawn."""
        curves = [curve for curve in self.curves if any(map(_is_drawn, curve.points))]
        return replace(self, curves=[replace(c, points=[p if _is_drawn(p) else (p[0], nan, None) for p in c.points])
                                     for c in curves])


def _is_drawn(point: Point) -> bool:
    _, mean, found = point
    return all(map(is_drawable, (mean, found.low, found.high) if found else (mean,)))


def line_style(number: int) -> dict[str, Any]:
    """How the run of this number is drawn in every plot."""
    kind, earlier = number % 3, number // 3 % 3
    return {
        "color": COLOURS[number % len(COLOURS)], "linestyle": _DASHES[kind], "marker": _MARKERS[number % 4],
        "linewidth": _WIDTHS[kind] * _THINNER**earlier, "markersize": _SIZES[kind] * _THINNER**earlier,
        "zorder": 3 + 0.1 * kind + 0.01 * earlier,
    }


def plot(name: str, title: str, caption: str, panels: Sequence[Panel]) -> Plot | None:
    """The panels that have a point, the first ``_MOST``; None where none has."""
    every = [panel for panel in panels if any(map(_is_drawn, panel.points))]
    if not every:
        return None
    gaps = [panel.title or panel.y_label for panel in every[:_MOST] if not all(map(_is_drawn, panel.points))]
    panels = [panel.with_gaps() for panel in every[:_MOST]]
    if len(every) > _MOST:
        caption = f"{caption} The first {_MOST} of {len(every):,} panels."
    if gaps:
        caption = f"{caption} Gaps in {', '.join(gaps)}: values that are no numbers, or beyond {LARGEST:g}."
    with rc_context(STYLE):
        wide = _figure(panels, _WIDE, min(len(panels), 3))
        narrow = _figure(panels, _NARROW, 1)
        return Plot(name, title, caption, png_of(wide), svg_of(wide), svg_of(narrow))


def _figure(panels: Sequence[Panel], width: float, columns: int) -> Figure:
    lines = ceil(len(panels) / columns)
    labels = list(dict.fromkeys(c.label for panel in panels for c in panel.curves if c.label))
    longest = max((len(shorten(label)) for label in labels), default=0)
    legend_columns = max(1, min(3, int(width * _LETTERS) // (longest + 9)))
    legend_lines = ceil(len(labels) / legend_columns)
    large = columns == 1 and width == _WIDE
    panel_height = 3.9 if large else 2.9 if columns > 1 or len(panels) == 1 else 2.4
    figure = Figure(figsize=(width, panel_height * lines + _LINE * legend_lines + 0.2), dpi=_DPI, layout="constrained")
    axes = list(figure.subplots(lines, columns, squeeze=False).ravel())
    handles: dict[str, Artist] = {}
    for axis, panel in zip(axes, panels, strict=False):
        titled = replace(panel, title=_cut(shorten(panel.title), int(width * _LETTERS) // columns))
        handles |= _fill(axis, titled, 1.0 if large or columns == 1 else 0.85)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    if handles:
        room = int(width * _LETTERS) - 4
        figure.legend(list(handles.values()), [_cut(shorten(label), room) for label in handles],
                      loc="outside lower center", ncols=legend_columns, frameon=False, fontsize=9, handlelength=3.5)
    return figure


def _cut(name: str, room: int) -> str:
    return name if len(name) <= room else f"{name[: room // 2]}…{name[-room // 2 + 1 :]}"


def _fill(axis: Axes, panel: Panel, size: float) -> dict[str, Artist]:
    handles: dict[str, Artist] = {}
    crowded = len(panel.curves) > 8
    for curve in panel.curves:
        x, y, estimates = zip(*curve.points, strict=True)
        (line,) = axis.plot(x, y, **curve.style)
        if not line.get_marker():
            lonely = _between_gaps(y)
            axis.plot([x[at] for at in lonely], [y[at] for at in lonely], **{**curve.style, **_DOTS})
        if curve.label:
            handles[curve.label] = line
        bars = [(at * curve.aside, e) for at, e in zip(x, estimates, strict=True) if e]
        if bars:
            axis.vlines([at for at, _ in bars], [e.low for _, e in bars], [e.high for _, e in bars],
                        color=line.get_color(), linewidth=1.2, alpha=0.4 if crowded else 0.85)
    axis.set_title(panel.title, fontsize=10.5 * size, loc="left")
    axis.set_xlabel(panel.x_label, fontsize=10 * size)
    axis.set_ylabel(shorten(panel.y_label), fontsize=10 * size)
    _across(axis, panel)
    _up(axis, panel)
    axis.tick_params(labelsize=9 * size)
    axis.grid(True, color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    return handles


def _between_gaps(values: Sequence[float]) -> list[int]:
    """Where values stand that no line leads to."""
    padded = [False, *map(is_drawable, values), False]
    return [at for at in range(len(values)) if padded[at : at + 3] == [False, True, False]]


def _across(axis: Axes, panel: Panel) -> None:
    if panel.ticks is None:
        axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        return
    axis.set_xscale("log", base=2)
    step = ceil(len(panel.ticks) / _TICKS)
    axis.set_xticks(list(panel.ticks)[::step], [_cut(name, _NAME) for name in list(panel.ticks.values())[::step]])
    axis.xaxis.set_minor_locator(NullLocator())
    across = [*panel.ticks, *(x * curve.aside for curve in panel.curves for x, _, _ in curve.points)]
    axis.set_xlim(min(across) / 2**0.3, max(across) * 2**0.3)


def _up(axis: Axes, panel: Panel) -> None:
    values = [y for _, y, _ in panel.points if is_drawable(y)]
    if panel.scale == "percent":
        axis.set_ylim(-3, 103)
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))
        return
    if panel.scale == "log" and min(values) > 0:
        axis.set_yscale("log")
        axis.set_ylim(min(values) / 1.6, max(values) * 1.6)
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_minor_locator(NullLocator())
    elif panel.scale != "auto":
        axis.set_ylim(bottom=0)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
