"""Lines of equal values are all seen, runs differ without colours, and the thick line is a mean of what is around."""

import io
from math import isnan
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

from mem_agent.report.data import COLUMNS, TrainingRun
from mem_agent.report.plots import COLOURS, evaluation_plots, line_style, plot, training_plots


def frame(runs, lengths=("50", "100", "200", "400")):
    """Runs of equal accuracy at each length."""
    return pd.DataFrame([("run", f"run {run}", "", "qa", length, "x", "score", "sub_em", 40.0 + at, 30.0, 50.0, 9)
                         for run in range(runs) for at, length in enumerate(lengths)], columns=COLUMNS)


def pixels_of(png, colour):
    image = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)
    wanted = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return int((np.abs(image - wanted).sum(axis=2) < 60).sum())


@pytest.mark.parametrize("count", [2, 3, 5])
def test_lines_of_equal_values_are_all_seen(count):
    (drawn,) = evaluation_plots(frame(count), {})
    seen = {number: pixels_of(drawn.png, COLOURS[number]) for number in range(count)}
    assert all(found > 300 for found in seen.values()), seen


def test_the_first_twelve_runs_differ_without_their_colours():
    styles = [line_style(number) for number in range(12)]
    assert len({(str(style["linestyle"]), style["marker"]) for style in styles}) == 12


@pytest.mark.parametrize(("count", "lengths"), [(1, ["50"]), (25, ["50", "100"]), (2, [f"l{n}" for n in range(100)])])
def test_any_number_of_runs_and_lengths_has_a_drawing_in_two_widths(count, lengths):
    (drawn,) = evaluation_plots(frame(count, lengths), {})
    assert drawn.wide.startswith(b"<?xml") and drawn.wide != drawn.narrow and b"<!--" not in drawn.wide


def test_the_same_numbers_give_the_same_bytes():
    assert evaluation_plots(frame(2), {}) == evaluation_plots(frame(2), {})


def test_nothing_to_draw_is_no_plot():
    assert plot("x", "", "", []) == [] == training_plots([], [])


def test_a_mean_is_over_the_rollouts_around_it_without_gaps():
    values = [None if n % 7 == 3 else float(n * n) for n in range(200)]
    run = TrainingRun("run", Path("run"), pd.DataFrame({"kl": values}, index=range(1, 201)).fillna(np.inf))
    (updates,) = training_plots([run], [[]])
    assert updates.caption == ("Thin: each rollout; thick: the mean of 11 around it. "
                               "Gaps in KL to the reference: values that are no numbers, or beyond 1e+30.")
    from mem_agent.report import plots

    axis = Figure().subplots()
    plots._smoothed(axis, run, 0, "kl", 1.0, None)
    for at, (value, mean) in enumerate(zip(values, axis.lines[1].get_ydata(), strict=True)):
        near = [v for v in values[max(0, at - 5) : at + 6] if v is not None]
        assert isnan(mean) if value is None else mean == pytest.approx(fmean(near))
