"""Solved examples of our own, for prompts with shots."""

from __future__ import annotations

from collections.abc import Sequence

from .countdown import problems
from .math_questions import MathQuestion, of_problem, read_gsm8k

_SEED = "exemplars"
_SUMS = (
    ("A baker fills 6 trays with 12 rolls each and sells 50 rolls. How many rolls are left?",
     "6 trays of 12 rolls are 6 * 12 = 72 rolls.\nAfter selling 50 there are 72 - 50 = 22 rolls.\n#### 22"),
    ("A train leaves with 84 people. At the first stop 19 get off and 7 get on. How many are on the train then?",
     "When 19 get off, 84 - 19 = 65 stay.\nWith 7 more there are 65 + 7 = 72 people.\n#### 72"),
    ("Mira reads 15 pages a day. Of a book of 240 pages she has read 90. How many more days does she need?",
     "She has 240 - 90 = 150 pages to go.\nAt 15 a day that takes 150 / 15 = 10 days.\n#### 10"),
    ("A shirt costs $40 and is reduced by a quarter. What do three such shirts cost in dollars?",
     "A quarter of 40 is 40 / 4 = 10.\nA shirt costs 40 - 10 = 30 dollars.\nThree cost 3 * 30 = 90 dollars.\n#### 90"),
    ("Omar saves $8 a week, his sister twice as much. How many dollars do they save together in 5 weeks?",
     "His sister saves 2 * 8 = 16 dollars a week.\nTogether they save 8 + 16 = 24 a week.\n"
     "In 5 weeks that is 5 * 24 = 120 dollars.\n#### 120"),
    ("A garden is 9 metres long and 4 metres wide. What does a fence around it cost in dollars, at $6 a metre?",
     "The way around is 2 * (9 + 4) = 26 metres.\nAt 6 dollars a metre that is 26 * 6 = 156 dollars.\n#### 156"),
    ("A class of 28 goes boating. A boat holds 5. How many boats are needed?",
     "5 full boats hold 5 * 5 = 25 children.\n28 - 25 = 3 are left, who need another.\n5 + 1 = 6 boats.\n#### 6"),
    ("Three friends share 2 pizzas of 12 slices evenly, and one gives 3 slices of hers away. How many has she then?",
     "2 pizzas have 2 * 12 = 24 slices.\nEach friend gets 24 / 3 = 8.\nShe keeps 8 - 3 = 5.\n#### 5"),
)


def exemplars(task: str) -> Sequence[MathQuestion]:
    """The pack's own for a task."""
    if task == "countdown":
        return [of_problem(problem) for problem in problems(8, _SEED)]
    return [read_gsm8k({"question": question, "answer": answer}) for question, answer in _SUMS]
