"""The benchmark of kept trajectories runs a real rollout, and compares it with one that keeps none."""

from mem_agent.benchmarks import tracing
from mem_agent.benchmarks.stopwatch import Sample


def test_a_small_rollout_is_run_with_and_without():
    (found,) = tracing.measure(quick=True, documents=1, reply=16)
    assert len(found.values) == 1 and "2,048 sampled tokens in 3 s" in found.note
    assert all(len(found.samples[name]) == 1 for name in ("without", "kept"))


def test_the_share_is_what_is_added_to_the_rollout():
    taken = {"without": [Sample(1.0, 9.0), Sample(2.0, 9.0)], "kept": [Sample(1.5, 9.0), Sample(2.0, 9.0)]}
    found = tracing.line(taken, 100, 10.0)
    assert found.values == (0.05, 0.0) and found.met is False
