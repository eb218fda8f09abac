"""Lines of the rollout benchmark from rows of two variants."""

from mem_agent.benchmarks.prefill import of_counts, of_times
from mem_agent.benchmarks.rollout import VARIANTS

CASE = {"documents": 2, "siblings": 8, "turns": 6, "chunk": 1024, "memory": 64}


def row(computed, wall):
    return CASE | {"sent": 9_000, "replies": 1_000, "computed": computed, "ideal": 1_000, "cpu_s": 2 * wall,
                   "computed_by_turn": [600, 440], "ideal_by_turn": [600, 400], "wall_s": wall, "p90_s": wall / 2}


def test_prefill_is_compared_with_the_ideal_and_with_memory_first():
    ideal, first = of_counts([row(1_040, 5.0)], [row(6_240, 20.0)], target=5.0)
    assert (ideal.values, ideal.met, ideal.at_most) == ((1.04,), True, True)
    assert (first.values, first.met, first.target) == ((6.0,), True, 5.0) and "600/600, 440/400" in first.note


def test_times_are_compared_round_by_round():
    lines = of_times([row(0, 5.0), row(0, 4.0)], [row(0, 15.0), row(0, 8.0)])
    assert lines[0].values == (3.0, 2.0) and lines[0].met
    assert [line.values for line in lines[2:]] == [(5.0, 4.0), (2.5, 2.0), (2_000.0, 2_500.0)]


def test_the_variants_that_are_compared_are_there():
    assert {"memory", "trajectory"} < {variant.name for variant in VARIANTS}
