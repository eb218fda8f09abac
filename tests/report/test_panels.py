"""Lines of equal values are all seen, and every colour has its counterpart in the dark."""

import io
import warnings
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mem_agent.evaluation.statistics import Estimate
from mem_agent.report.panels import Curve, Panel, line_style, plot
from mem_agent.report.themes import COLOURS, in_both_themes

POINTS = [(2.0**n, 40.0 + 5 * n, None) for n in range(6)]


def panel(count, points=POINTS, ticks=True):
    curves = [Curve("", line_style(number), points) for number in range(count)]
    return Panel("", "", "", {x: f"{x:g}" for x, _, _ in points} if ticks else None, curves, "percent")


def pixels_of(png, colour):
    image = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)
    wanted = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return int((np.abs(image - wanted).sum(axis=2) < 60).sum())


@pytest.mark.parametrize("count", [2, 3, 5])
def test_lines_of_equal_values_are_all_seen(count):
    drawn = plot("x", "", "", [panel(count)])
    seen = {number: pixels_of(drawn.png, COLOURS[number]) for number in range(count)}
    assert all(found > 300 for found in seen.values()), seen


def test_the_first_twelve_runs_differ_without_their_colours():
    styles = [line_style(number) for number in range(12)]
    assert len({(str(style["linestyle"]), style["marker"]) for style in styles}) == 12


@pytest.mark.parametrize("broken", [nan, inf, -inf, 1e308])
def test_a_value_that_cannot_be_drawn_is_a_gap_and_moves_no_axis(broken):
    whole = [(x, y, Estimate(y, y - 1, y + 1, 9)) for x, y, _ in POINTS]
    for one in ((POINTS[2][0], broken, None), (POINTS[2][0], 50.0, Estimate(50.0, 40.0, broken, 9))):
        scale = {"points": [*whole[:2], one, *whole[3:]], "ticks": False}
        drawn, without = (replace(panel(1, **scale | more), scale="auto")
                          for more in ({}, {"points": [*whole[:2], (one[0], nan, None), *whole[3:]]}))
        assert drawn.with_gaps() == without.with_gaps()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert plot("x", "", "caption.", [drawn]).png == plot("x", "", "", [without]).png
        assert plot("x", "", "caption.", [replace(drawn, title="loss")]).caption == (
            "caption. Gaps in loss: values that are no numbers, or beyond 1e+30.")
    assert plot("x", "", "", [panel(1, [(1.0, broken, None)])]) is None


@pytest.mark.parametrize("place", [0, 2, 5])
def test_a_point_between_two_gaps_is_seen_on_a_line_without_markers(place):
    points = [(x, y if at == place else nan, None) for at, (x, y, _) in enumerate(POINTS)]
    style = line_style(0) | {"marker": ""}
    drawn = plot("x", "", "", [replace(panel(1), curves=[Curve("", style, points)])])
    assert pixels_of(drawn.png, COLOURS[0]) > 50


def test_nothing_to_draw_is_no_plot():
    assert plot("x", "", "", [panel(2, [])]) is None


@settings(max_examples=8)
@given(st.integers(1, 25), st.booleans())
def test_every_number_of_runs_has_a_drawing_for_either_theme(count, ticks):
    drawn = plot("x", "", "", [panel(count, POINTS[:2], ticks)])
    assert b"prefers-color-scheme:dark" in drawn.wide and drawn.narrow.count(b"var(--c") > count


def test_the_same_figure_gives_the_same_bytes():
    first, second = (plot("x", "t", "", [panel(2)]) for _ in range(2))
    assert first == second


def test_a_colour_of_one_theme_alone_is_refused():
    with pytest.raises(AssertionError, match="no dark counterpart of #123456"):
        in_both_themes(b'<svg xmlns="http://www.w3.org/2000/svg"><path style="fill: #123456"/></svg>')
