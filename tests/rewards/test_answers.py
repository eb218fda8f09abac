r"""Answers in replies: boxes, "the answer is", and kinds of answers."""

import importlib.util
import random

import pytest

from mem_agent.rewards.answers import (
    behind_one_box,
    kind_of,
    last_boxed,
    published_boxed,
    the_answer_is,
)
from mem_agent.tests.helpers.published import MEMAGENT, checkout

# text, last_boxed, published_boxed
BOXES = [
    (r"The capital is \boxed{Rome}.", "Rome", "Rome"),
    (r"\boxed{Paris} no, \boxed{ Rome }", "Rome", " Rome "),
    (r"\boxed{a{b{c}}d} }", "a{b{c}}d", "a{b{c}}d"),
    (r"\boxed{\fbox{Rome}}", "Rome", r"\fbox{Rome}"),
    (r"\boxed{a \} b}", r"a \} b", "a \\"),  # an escaped brace prints a brace
    (r"\boxed {Rome}", "Rome", "{Rome}"),
    ("\\boxed Rome\nnext line", "Rome", "Rome\nnext line"),
    (r"\boxed{Rome} (see \boxed x)", "Rome", "x)"),
    (r"\boxed{Rome} or \boxed{Par", None, None),
    ("Rome", None, None),
]


@pytest.mark.parametrize(("text", "ours", "published"), BOXES)
def test_boxes(text, ours, published):
    assert last_boxed(text) == ours and published_boxed(text) == published


def test_a_reply_has_one_box_if_it_is_closed_and_not_blank():
    assert behind_one_box(r"\boxed{f(\{1\}) = {3}}.") == "."
    assert {*map(behind_one_box, (r"\boxed{ }", r"\boxed{a", r"\boxed{a} \boxed{b}", r"\boxed a", ""))} == {None}


# Made with the published extract_answer (MemAgent 76b7a65).
SAID = [
    ("Therefore, the answer is **Rome**.", "Rome"),
    ("the answer is Paris. No, the answer is Rome", "Rome"),
    ("The Answer Is Rome", None),
    ("the answer is . U.S.A. .", "U.S.A."),  # dots at both ends go once
    ("the answer is <｜Assistant｜> Rome.<｜end▁of▁sentence｜>\n", "Rome"),
]


@pytest.mark.parametrize(("reply", "answer"), SAID)
def test_what_is_said_to_be_the_answer(reply, answer):
    assert the_answer_is(reply) == answer


def test_the_answer_is_as_published():
    path = checkout(MEMAGENT) / "taskutils" / "memory_eval" / "utils" / "__init__.py"
    spec = importlib.util.spec_from_file_location("published_utils", path)
    published = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(published)
    rng = random.Random(0)
    parts = ["the answer is", "The answer is", "*", "**", ".", " ", "\n", "Rome", "U.S.", "\\boxed{x}", "\u00a0", "é",
             "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜", "the ", "answer is", "\t"]
    replies = ["".join(rng.choices(parts, k=rng.randint(0, 12))) for _ in range(5000)]
    assert [reply for reply in replies if the_answer_is(reply) != published.extract_answer(reply)] == []


def test_kinds_of_answers():
    kinds = {"No.": "choice", "yes": "choice", "1,984": "number", "twenty one": "number", "UK": "number",
             "Ann Lee": "open", "Nora": "open"}
    assert {answer: kind_of(answer) for answer in kinds} == kinds
