"""Answers in replies: boxes, "the answer is", the training reward, and forms of a reply."""

import pytest

from mem_agent.rewards.answers import behind_one_box, form_shares, in_form, last_boxed, published_boxed, the_answer_is
from mem_agent.tasks.qa import boxed_exact_match

# text, last_boxed, published_boxed
BOXES = [
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


def test_what_is_said_to_be_the_answer():
    """Made with the published extract_answer (MemAgent 76b7a65)."""
    said = {
        "Therefore, the answer is **Rome**.": "Rome", "the answer is Paris. No, the answer is Rome": "Rome",
        "The Answer Is Rome": None, "the answer is . U.S.A. .": "U.S.A.",  # dots at both ends go once
        "the answer is <｜Assistant｜> Rome.<｜end▁of▁sentence｜>\n": "Rome",
    }
    assert {reply: the_answer_is(reply) for reply in said} == said


# response, golds, reward under answer, reward under published (the first were verified on MemAgent's code)
REWARDS = [
    (r"\boxed{the beatles}", ["The Beatles"], 1, 1),
    (r"\boxed{the beatles}", ["Beatles"], 1, 0),
    (r"\boxed{\text{Paris}.}", ["Paris"], 1, 0),
    (r"\boxed{Paris}" + "." * 300, ["Paris"], 1, 0),
    (r"\boxed{NewYork}", ["New York"], 0, 1),
    (r"\boxed{\textbf{The \mathrm{Beatles}}}", ["other", "Beatles"], 1, 0),
    (r"\boxed{35\%}", ["35%"], 1, 0),
    (r"\boxed{ .5}", ["0.5"], 0, 1),
    (r"\boxed{-5}", ["5"], 0, 0),
    (r"\boxed{\frac{1}{12}}", [r"\frac{11}{2}"], 0, 0),
    (r"\boxed{World’s “Best”}", ["World's \"Best\""], 1, 0),
    (r"<think>\boxed{Paris}</think> Paris", ["Paris"], 0, 1),
    (r"\boxed{}", [""], 0, 1),
]


@pytest.mark.parametrize(("response", "golds", "answer", "published"), REWARDS)
def test_rewards(response, golds, answer, published):
    assert boxed_exact_match(response, golds) == answer
    assert boxed_exact_match(response, golds, style="published") == published


def test_published_f1_counts_words_between_blanks():
    worth = {r"\boxed{The Beatles}": 1.0, r"\boxed{Beatles}": 2 / 3, r"\boxed{beatles.}": 0.0, "Beatles": 0.0}
    assert {reply: boxed_exact_match(reply, ["x", "the beatles"], "published_f1") for reply in worth} == worth


# --- the form of a reply; the tables are by hand from the definitions in the module ---------------------------------

PARTS = ("integer", "strict_format", "soft_format", "tags")
GOOD = "<reasoning>\nfirst 9\n\nthen 18\n</reasoning>\n<answer>\n18\n</answer>"
FORMS = [
    # form, reply -> integer, strict_format, soft_format; and tags of the reasoning form
    ("reasoning", f"\n{GOOD}\n", 1, 1, 1, 1),
    ("reasoning", GOOD.replace("\n18\n</a", "\n-18\n</a"), 1, 1, 1, 1),
    # 10 characters behind the last tag cost 0.004 each; enough of them cost no more than there was.
    ("reasoning", f"{GOOD}\n0123456789", 1, 0, 1, 0.96),
    ("reasoning", f"{GOOD} " + "x" * 10_000, 1, 0, 1, 0),
    ("reasoning", GOOD.removesuffix("\n</answer>"), 1, 0, 0, 0.75),
    ("reasoning", f"Well. {GOOD}", 1, 0, 0, 1),
    ("boxed", "9 * 2\nso $\\boxed{18}$.", 1, 1, 1),
    ("boxed", "so \\[\\boxed{\\frac{1}{2}}\\]", 0, 1, 1),
    ("boxed", "\\boxed{9}, \\boxed{18}", 1, 0, 1),
    ("boxed", "so \\boxed{}", 0, 0, 0),
    *((form, in_form(form, "two\nlines", "18"), 1, 1, 1, 1) for form in ("reasoning", "boxed")),
]


@pytest.mark.parametrize(("form", "reply", "shares"), [(form, reply, shares) for form, reply, *shares in FORMS])
def test_parts_of_a_form(form, reply, shares):
    given = form_shares(form, reply)
    assert given == pytest.approx(dict(zip([name for name in PARTS if name in given], shares, strict=False)))
    assert ("tags" in given) == (form == "reasoning")
