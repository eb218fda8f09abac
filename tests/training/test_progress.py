"""What a terminal is shown of a run: the time that is left, what is being sampled, and lines that fit."""

import io
import sys

import pytest
from rich.console import Console

from mem_agent.training import live
from mem_agent.training.progress import Counts, Phase, Progress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def run_of(rollouts=40, seconds=(60, 58, 62), clock=None):
    """A run in the sampling phase of the rollout after those that took ``seconds``."""
    clock = clock or Clock()
    progress = Progress("pocket-1", rollouts, 64, clock=clock)
    for number, took in enumerate(seconds):
        progress.enter(Phase.SAMPLING, number)
        clock.now += took
        progress.finish({"reward": number / 10, "reward_interval": 0.081, "turns": 4.0, "loss": 0.001,
                         "tokens_per_second": 1410.0, "prefix_cache_hit_rate": 0.58})
    progress.enter(Phase.SAMPLING, len(seconds))
    return progress, clock


def test_the_example_of_the_time_left():
    progress, clock = run_of(33)
    clock.now += 15
    assert progress.view().left_s == 30 * 60 - 15


def test_what_was_sampled_before_this_rollout_does_not_count():
    progress, clock = run_of()
    progress.counts = lambda: Counts(100, 400, 9000, 4500, 800)
    progress.enter(Phase.SAMPLING, 3)
    progress.counts = lambda: Counts(141, 612, 9500, 4810, 2332)
    clock.now += 1
    assert progress.view().sampled == Counts(41, 212, 500, 310, 1532)
    assert live.now_text(progress.view()) == (
        "sampling 41 of 64 trajectories, 212 turns | 1,532 tokens/s | cache hits 62% | 1 s"
    )


def test_the_last_rollout_with_its_interval():
    assert live.last_text(run_of()[0].view()) == (
        "last: reward 0.200 ± 0.081 ▁▅█ | turns 4.0 | 1,410 tokens/s | cache hits 58% | loss +0.0010"
    )


def test_a_continued_run_shows_what_was_before():
    progress, _ = run_of(seconds=())
    progress.seen([0.1, 0.2], 2)
    view = progress.view()
    assert view.rewards == (0.1, 0.2) and view.done == 2


@pytest.mark.parametrize("values,bars", [
    ([], ""), ([0.5], "▅"), ([0.5, 0.5], "▅▅"), ([0, 1], "▁█"), ([-1, 0, 1, 0.8], "▁▅█▇"),
])
def test_a_curve_goes_from_its_lowest_to_its_highest(values, bars):
    assert live.curve(values) == bars


@pytest.mark.parametrize("seconds,text", [
    (0.4, "0 s"), (89.4, "89 s"), (89.6, "1 min"), (100, "2 min"), (5300, "88 min"), (5400, "1 h 30 min"),
    (11100, "3 h 05 min"), (90000, "25 h 00 min"),
])
def test_durations_have_two_units_at_most(seconds, text):
    assert live.duration(seconds) == text


def rendered(progress, width):
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True, color_system=None).print(live.drawn(progress.view()))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [30, 40, 80, 200])
def test_every_line_fits_the_terminal(width):
    lines = rendered(run_of()[0], width)
    assert len(lines) == 3 and all(len(line) <= width for line in lines)


def test_a_pipe_gets_no_live_lines(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not live.for_a_terminal()
