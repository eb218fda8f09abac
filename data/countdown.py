"""Countdown: reach a target with some numbers, each used exactly once, by ``+ - * /`` and parentheses.

    numbers 6, 4, 1   target 24      steps 6 * 4 = 24, 24 * 1 = 24      expression (6 * 4) * 1

Problems are made backwards, from a random expression to its value, so every one has a solution. All values on the way
are whole and not negative, as in the game; a problem that needs a fraction has no solution here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, count, islice

SIZES = (3, 4)
"""How many numbers a problem has."""
LARGEST_NUMBER, TARGETS = 99, range(10, 100)
SOLVED_SIZE = 4
"""Problems of more numbers take long to search."""


@dataclass(frozen=True, slots=True)
class Term:
    """A value with how it came about."""

    value: int
    text: str
    steps: tuple[str, ...] = ()
    """One line for each operation, in the order in which they are done."""

    @property
    def expression(self) -> str:
        """Without parentheses around the whole."""
        return self.text[1:-1] if self.steps else self.text


@dataclass(frozen=True, slots=True)
class Problem:
    numbers: tuple[int, ...]
    solution: Term
    """Its value is the target."""


def problems(number: int, seed: int | str) -> Iterator[Problem]:
    """So many problems, no two of the same numbers and target; the same ones for a seed, however many are made."""
    return islice(_problems(seed), number)


def _problems(seed: int | str) -> Iterator[Problem]:
    seen = set[tuple[tuple[int, ...], int]]()
    for number in count():
        problem = _problem(random.Random(f"{seed}/countdown/{number}"))
        key = tuple(sorted(problem.numbers)), problem.solution.value
        if problem.solution.value in TARGETS and key not in seen:
            seen.add(key)
            yield problem


def _problem(rng: random.Random) -> Problem:
    numbers = tuple(rng.randint(1, LARGEST_NUMBER) for _ in range(rng.choice(SIZES)))
    terms = _terms(numbers)
    while len(terms) > 1:
        left, right = rng.sample(range(len(terms)), 2)
        joined = rng.choice(list(_joined(terms[left], terms[right])))
        terms = [term for place, term in enumerate(terms) if place not in (left, right)] + [joined]
    return Problem(numbers, terms[0])


def solve(numbers: Sequence[int], target: int) -> Term | None:
    """The first solution that a search finds; None where there is none, or SOLVED_SIZE is exceeded."""
    return _search(_terms(numbers), target) if len(numbers) <= SOLVED_SIZE else None


def _search(terms: list[Term], target: int) -> Term | None:
    if len(terms) == 1:
        return terms[0] if terms[0].value == target else None
    for left, right in combinations(range(len(terms)), 2):
        rest = [term for place, term in enumerate(terms) if place not in (left, right)]
        for joined in _joined(terms[left], terms[right]):
            if (found := _search([*rest, joined], target)) is not None:
                return found
    return None


def _terms(numbers: Sequence[int]) -> list[Term]:
    return [Term(number, str(number)) for number in numbers]


def _joined(one: Term, other: Term) -> Iterator[Term]:
    """All that the two give, whole and not negative."""
    large, small = (one, other) if one.value >= other.value else (other, one)
    values = {"+": large.value + small.value, "-": large.value - small.value, "*": large.value * small.value}
    if small.value and large.value % small.value == 0:
        values["/"] = large.value // small.value
    for sign, value in values.items():
        step = f"{large.value} {sign} {small.value} = {value}"
        yield Term(value, f"({large.text} {sign} {small.text})", (*large.steps, *small.steps, step))
