"""The arithmetic task: an expression without brackets, which most ways of working get wrong.

    question  7 + 3 * 5 - 4
    reply     <reasoning>
              times first
              3 * 5 = 15
              7 + 15 = 22
              22 - 4 = 18
              </reasoning>
              <answer>
              18
              </answer>

A reply says its way of working in its first line, takes short steps, and answers with the last result. There is one
right way and several wrong ones (``Way``), none of which ever comes to the right value, but for a guess. So whoever
seldom works in the right way is seldom rewarded, and nothing of a wrong reply says how far from right it was.

Four numbers from 2 to 9 with three signs, of which the second or the third is ``*`` and no other; every result on any
way is 0 to 99. There is no document. Everything is a function of ``(seed, index)``, and the problems fall into two
parts by their own text (``held_out``): one is for evaluation, the other for training.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

SMALLEST, LARGEST, HIGHEST = 2, 9, 99
"""The numbers of a problem, and the highest result on any way."""
TASK = "gsm8k"
"""What rows name as their task: the form and the check of answers are those of GSM8K."""
_HELD_OUT_OF = 8
"""One problem in so many is for evaluation."""


class Way(Enum):
    """Ways of working; the value is the first line of the reasoning."""

    RIGHT = "times first"
    LEFT = "left to right"
    BACKWARDS = "right to left"
    SHORT = "without the last"
    LATE = "without the first"
    SUM = "all plus"
    GUESS = "a guess"


@dataclass(frozen=True, slots=True)
class Worked:
    """What a way of working came to."""

    way: Way
    steps: tuple[str, ...]
    value: int

    @property
    def reply(self) -> str:
        reasoning = "\n".join((self.way.value, *self.steps))
        return f"<reasoning>\n{reasoning}\n</reasoning>\n<answer>\n{self.value}\n</answer>"


@dataclass(frozen=True, slots=True)
class Problem:
    numbers: tuple[int, ...]
    signs: tuple[str, ...]

    @property
    def text(self) -> str:
        """The question."""
        later = zip(self.signs, self.numbers[1:], strict=True)
        return " ".join([str(self.numbers[0]), *(f"{sign} {number}" for sign, number in later)])

    @property
    def held_out(self) -> bool:
        """Whether it belongs to evaluation."""
        return zlib.crc32(self.text.encode()) % _HELD_OUT_OF == 0

    def work(self, way: Way, guess: int = 0) -> Worked:
        """Work in this way; ``guess`` is what a guess says."""
        numbers, signs = list(self.numbers), list(self.signs)
        match way:
            case Way.GUESS:
                return Worked(way, (), guess)
            case Way.SHORT:
                numbers, signs = numbers[:-1], signs[:-1]
            case Way.LATE:
                numbers, signs = numbers[1:], signs[1:]
            case Way.SUM:
                signs = ["+"] * len(signs)
        steps = []
        while signs:
            at = _next(way, signs)
            left, sign, right = numbers[at], signs.pop(at), numbers.pop(at + 1)
            numbers[at] = left * right if sign == "*" else left + right if sign == "+" else left - right
            steps.append(f"{left} {sign} {right} = {numbers[at]}")
        return Worked(way, tuple(steps), numbers[0])

    @property
    def fair(self) -> bool:
        """Whether every result is in range, and no wrong way but a guess comes to the right value."""
        all_worked = [self.work(way) for way in Way]
        results = [int(step.rpartition(" ")[2]) for worked in all_worked for step in worked.steps]
        right, *wrong = (worked.value for worked in all_worked if worked.way is not Way.GUESS)
        return all(0 <= result <= HIGHEST for result in results) and right not in wrong


def _next(way: Way, signs: list[str]) -> int:
    """The sign that is worked out next."""
    if way is Way.BACKWARDS:
        return len(signs) - 1
    return signs.index("*") if way is not Way.LEFT and "*" in signs else 0


def draw_problem(rng: random.Random, held_out: bool = False) -> Problem:
    """A fair problem for evaluation, or for training."""
    while True:
        numbers = tuple(rng.randint(SMALLEST, LARGEST) for _ in range(4))
        times, signs = rng.choice((1, 2)), [rng.choice("+-") for _ in range(3)]
        signs[times] = "*"
        problem = Problem(numbers, tuple(signs))
        if problem.held_out is held_out and problem.fair:
            return problem


def draw_worked(rng: random.Random, problem: Problem, way: Way) -> Worked:
    """The problem worked in this way; a guess is drawn."""
    return problem.work(way, rng.randint(0, HIGHEST))


def arithmetic_problems(seed: int, count: int, held_out: bool = False) -> Iterator[Problem]:
    for index in range(count):
        yield draw_problem(random.Random(f"arithmetic:{seed}:{index}"), held_out)


def train_row(index: int, problem: Problem) -> Mapping[str, Any]:
    """A line of a training file."""
    right = problem.work(Way.RIGHT)
    gold = str(right.value)
    about = {"task": TASK, "ground_truth": [gold], "solution": right.reply, "id": f"arithmetic-{index}"}
    return {"prompt": problem.text, "label": gold, "metadata": about}


def eval_entry(index: int, problem: Problem) -> Mapping[str, Any]:
    """An entry of an evaluation file."""
    return {"input": problem.text, "answers": [str(problem.work(Way.RIGHT).value)], "index": index, "task": TASK}
