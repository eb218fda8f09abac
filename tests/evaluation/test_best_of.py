"""best@k and pass@k, by hand and by counting draws."""

from itertools import combinations

import pytest

from mem_agent.evaluation.statistics import expected_best, pass_at, pass_sizes


@pytest.mark.parametrize(("values", "expected"), [
    ([1.0], 1.0), ([0.0, 1.0], 3 / 4), ([1.0, 0.0, 0.0, 0.0], 1 - (3 / 4) ** 4),
    # of three draws all are 0.2 in 1 of 27 cases, at most 0.5 in 8, else the best is 1
    ([1.0, 0.2, 0.5], 0.2 / 27 + 0.5 * 7 / 27 + 19 / 27),
])
def test_the_best_of_k(values, expected):
    assert expected_best(values) == pytest.approx(expected)


def test_pass_at_k_is_the_share_of_draws_with_a_right_answer():
    for answers in range(1, 7):
        for right in range(answers + 1):
            values = [1] * right + [0] * (answers - right)
            for k in range(1, answers + 1):
                drawn = [max(some) for some in combinations(values, k)]
                assert pass_at(k, answers, right) == pytest.approx(sum(drawn) / len(drawn))
    assert [pass_sizes(n) for n in (0, 1, 2, 5, 8)] == [[], [1], [1, 2], [1, 2, 4, 5], [1, 2, 4, 8]]
