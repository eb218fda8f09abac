r"""What keeping to a form is worth; the table is by hand from the definitions in the module."""

import pytest

from mem_agent.rewards.answers import answer_place, form_shares, in_form, reasoning_of

FORM_PARTS = ("integer", "strict_format", "soft_format", "tags")

GOOD = "<reasoning>\nfirst 9\n\nthen 18\n</reasoning>\n<answer>\n18\n</answer>"
REASONING = [
    # reply -> integer, strict_format, soft_format, tags
    (f"\n{GOOD}\n", 1, 1, 1, 1),
    (GOOD.replace("\n18\n</a", "\n-18\n</a"), 1, 1, 1, 1),
    # 10 characters behind the last tag cost 0.004 each; enough of them cost no more than there was.
    (f"{GOOD}\n0123456789", 1, 0, 1, 0.96),
    (f"{GOOD} " + "x" * 10_000, 1, 0, 1, 0),
    (GOOD.removesuffix("\n</answer>"), 1, 0, 0, 0.75),
    (f"Well. {GOOD}", 1, 0, 0, 1),
    (GOOD.replace("first 9\n\nthen 18", " "), 1, 0, 1, 1),
    ("18", 0, 0, 0, 0),
]


@pytest.mark.parametrize(("reply", "integer", "strict", "soft", "tags"), REASONING)
def test_parts_of_the_reasoning_form(reply, integer, strict, soft, tags):
    expected = dict(zip(FORM_PARTS, (integer, strict, soft, tags), strict=True))
    assert form_shares("reasoning", reply) == pytest.approx(expected)


BOXED = [
    # reply -> integer, strict_format, soft_format
    ("9 * 2\nso $\\boxed{18}$.", 1, 1, 1),
    ("so \\[\\boxed{\\frac{1}{2}}\\]", 0, 1, 1),
    ("so \\boxed{18} eggs", 1, 0, 1),
    ("\\boxed{9}, \\boxed{18}", 1, 0, 1),
    ("so \\boxed{}", 0, 0, 0),
]


@pytest.mark.parametrize(("reply", "integer", "strict", "soft"), BOXED)
def test_parts_of_the_boxed_form(reply, integer, strict, soft):
    assert form_shares("boxed", reply) == dict(zip(FORM_PARTS, (integer, strict, soft), strict=False))


PLACES = [
    (GOOD, "18", "first 9\n\nthen 18"),
    ("<answer>9</answer> no <answer> 18", "18", "<answer>9</answer> no"),
    ("so \\boxed{18}.", "18", "so"),
    ("#### 1\n#### 18\n", "18", "#### 1"),
    ("so 18", None, "so 18"),
]


@pytest.mark.parametrize(("reply", "answer", "reasoning"), PLACES)
def test_where_an_answer_is_and_what_led_to_it(reply, answer, reasoning):
    assert answer_place(reply) == answer and reasoning_of(reply) == reasoning


@pytest.mark.parametrize("form", ["reasoning", "boxed"])
@pytest.mark.parametrize("reasoning", ["two\nlines", ""])
def test_a_reply_that_is_made_in_a_form_has_it(form, reasoning):
    reply = in_form(form, reasoning, "18")
    assert set(form_shares(form, reply).values()) == {1.0} and answer_place(reply) == "18"
