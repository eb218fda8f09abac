"""Countdown problems: every number once, every step true, whole and not negative; the same ones for the same seed."""

import ast
import operator
import re
from collections import Counter

import pytest

from mem_agent.data.countdown import SIZES, TARGETS, problems, solve

SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv}


def value(node):
    """Of an expression of whole numbers and four signs; nothing else is looked at."""
    if isinstance(node, ast.Constant):
        return node.value
    left, right = value(node.left), value(node.right)
    assert not isinstance(node.op, ast.Div) or left % right == 0
    return SIGNS[type(node.op)](left, right)


def check(solution, numbers, target):
    assert value(ast.parse(solution.expression, mode="eval").body) == solution.value == target
    assert Counter(map(int, re.findall(r"\d+", solution.expression))) == Counter(numbers)
    assert len(solution.steps) == len(numbers) - 1
    for step in solution.steps:
        left, _, right = step.partition(" = ")
        assert value(ast.parse(left, mode="eval").body) == int(right) >= 0
    assert solution.steps[-1].endswith(f" = {target}")


def test_every_problem_made_has_its_solution():
    made = list(problems(300, 1))
    for problem in made:
        assert len(problem.numbers) in SIZES and problem.solution.value in TARGETS
        check(problem.solution, problem.numbers, problem.solution.value)
    assert {len(p.numbers) for p in made} == set(SIZES)
    assert len({(tuple(sorted(p.numbers)), p.solution.value) for p in made}) == 300


def test_problems_are_those_of_the_seed_however_many_are_made():
    assert list(problems(9, 1))[:5] == list(problems(5, 1)) != list(problems(5, 2))


@pytest.mark.parametrize("numbers,target", [([6, 4, 1], 24), ([3, 3, 8, 8], 22), ([2, 2], 4), ([100, 4, 5], 20),
                                            ([5, 5, 5, 5], 26), ([7, 7, 1], 0)])
def test_a_solution_is_found(numbers, target):
    check(solve(numbers, target), numbers, target)


@pytest.mark.parametrize("numbers,target", [
    ([1, 1], 24), ([3, 3, 8, 8], 24),  # 8 / (3 - 8 / 3) needs a fraction
    ([1, 2, 3, 4, 5], 15),  # too many to search
])
def test_no_solution_is_made_up(numbers, target):
    assert solve(numbers, target) is None


def test_a_problem_of_four_is_searched_in_a_moment():
    assert solve([97, 89, 83, 79], 1) is None
