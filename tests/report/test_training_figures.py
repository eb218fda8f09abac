"""The thick line of a training run: the mean of what is around each rollout, for a bounded price."""

from math import isnan, nan
from pathlib import Path
from statistics import fmean

from mem_agent.report import training_figures
from mem_agent.report.training_run import TrainingRun


def run_of(values):
    return TrainingRun("run", Path("run"), {done: {"kl": value} for done, value in enumerate(values, start=1)})


def means_of(run):
    _, thick = training_figures._smoothed(run, 0, "kl", 1.0, alone=True, named=True)
    return [mean for _, mean, _ in thick.points]


def test_a_mean_is_over_the_rollouts_around_it_without_gaps():
    values = [nan if n % 7 == 3 else float(n * n) for n in range(200)]
    found = means_of(run_of(values))
    half = training_figures._window(run_of(values)) // 2
    for at, (value, mean) in enumerate(zip(values, found, strict=True)):
        near = [v for v in values[max(0, at - half) : at + half + 1] if not isnan(v)]
        assert isnan(mean) if isnan(value) else mean == fmean(near)


def test_no_mean_is_over_more_rollouts_than_the_widest(monkeypatch):
    counted = []
    monkeypatch.setattr(training_figures, "fmean", lambda values: counted.append(len(values)) or 0.0)
    means_of(run_of([1.0] * 40_000))
    assert len(counted) == 40_000 and max(counted) == 501
