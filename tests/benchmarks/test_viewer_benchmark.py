"""The benchmark of the page of trajectories, on a small run: every line is there, in its unit and with its target."""

from mem_agent.benchmarks import viewer
from mem_agent.benchmarks.made_trajectories import Shape


def test_every_line_of_a_small_run():
    size, writing, opening = viewer.measure(quick=True, shape=Shape(groups=2, siblings=2), rollouts=2)
    assert [(line.unit, line.target) for line in (size, writing, opening)] == [("MB", 20.0), ("s", None), ("s", 2.0)]
    assert size.what == "8 trajectories: the page" and 0 < size.values[0] < 1 and size.met and writing.values[0] > 0
    assert opening.values or "no chromium" in opening.note
