"""Which questions a round trains: exact counts, by the last ranking or at random, whatever the order of the rows."""

import pytest

from mem_agent.memsifter.row_choice import Candidate, in_order, priority


def test_the_priority_is_highest_at_the_anchor():
    assert priority(0.2) == 1 and priority(0.0) == pytest.approx(0.8) and priority(1.0) == pytest.approx(0.2)


def candidates(scores):
    return [Candidate(number, f"q{number}", score) for number, score in enumerate(scores)]


def chosen(rows, count, seed=1, dataset="d", anchored=True):
    return [c.id for c in in_order(rows, seed=seed, dataset=dataset, anchored=anchored)][:count]


def test_the_best_are_taken_first():
    """Distances from the anchor: 0.8, 0.101, 0.2, 0.05."""
    rows = candidates([1.0, 0.301, 0.0, 0.25])
    assert chosen(rows, 2) == ["q3", "q1"] and chosen(rows, 9) == ["q3", "q1", "q2", "q0"]


@pytest.mark.parametrize("anchored", [True, False])
def test_ties_and_chance_are_exact_and_of_the_seed_not_of_the_order(anchored):
    rows = candidates([0.5] * 40)
    first = chosen(rows, 7, anchored=anchored)
    assert len(first) == 7
    assert set(first) == set(chosen(rows[::-1], 7, anchored=anchored))
    assert first != chosen(rows, 7, seed=2, anchored=anchored) != chosen(rows, 7, dataset="e", anchored=anchored)
    assert set(first) < set(chosen(rows, 8, anchored=anchored))
