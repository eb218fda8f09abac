r"""What keeping to a form is worth; the table is by hand from the definitions in the module."""


import pytest

from mem_agent.rewards.reply_form import FORM_PARTS, Form, answer_place, form_shares, in_form, reasoning_of

GOOD = "<reasoning>\nfirst 9\n\nthen 18\n</reasoning>\n<answer>\n18\n</answer>"
REASONING = [
    # reply -> integer, strict_format, soft_format, tags
    (GOOD, 1, 1, 1, 1),
    (f"\n{GOOD}\n", 1, 1, 1, 1),
    (GOOD.replace("\n18\n</a", "\n-18\n</a"), 1, 1, 1, 1),
    (GOOD.replace("\n18\n</a", "\n$18\n</a"), 0, 1, 1, 1),
    (GOOD.replace("\n18\n</a", "\n1,080\n</a"), 0, 1, 1, 1),
    (GOOD.replace("\n18\n</a", "\n18.0\n</a"), 0, 1, 1, 1),
    # 10 characters behind the last tag cost 0.004 each; enough of them cost no more than there was.
    (f"{GOOD}\n0123456789", 1, 0, 1, 0.96),
    (f"{GOOD} " + "x" * 10_000, 1, 0, 1, 0),
    # All on one line: the order is there, the line breaks are not.
    ("<reasoning>9</reasoning><answer>18</answer>", 1, 0, 1, 0),
    ("<reasoning>\n9\n</reasoning>\n\n<answer>\n18\n</answer>", 1, 0, 1, 1),
    # One tag is missing.
    (GOOD.removesuffix("\n</answer>"), 1, 0, 0, 0.75),
    (GOOD.removeprefix("<reasoning>\n"), 1, 0, 0, 0.75),
    ("so\n<answer>\n18\n</answer>", 1, 0, 0, 0.5),
    (GOOD.replace("</reasoning>", "and"), 1, 0, 0, 0.75),
    # Something before, between, or twice.
    (f"Well. {GOOD}", 1, 0, 0, 1),
    (GOOD.replace("<answer>", "so <answer>"), 1, 0, 0, 0.75),
    (f"{GOOD}\n{GOOD}", 1, 0, 1, 0),
    # Blank blocks.
    (GOOD.replace("\n18\n</a", "\n\n</a"), 0, 0, 1, 1),
    (GOOD.replace("first 9\n\nthen 18", " "), 1, 0, 1, 1),
    ("", 0, 0, 0, 0),
    ("18", 0, 0, 0, 0),
    ("so \\boxed{18}", 1, 0, 0, 0),
]


@pytest.mark.parametrize(("reply", "integer", "strict", "soft", "tags"), REASONING)
def test_parts_of_the_reasoning_form(reply, integer, strict, soft, tags):
    expected = dict(zip(FORM_PARTS, (integer, strict, soft, tags), strict=True))
    assert form_shares(Form.REASONING, reply) == pytest.approx(expected)


BOXED = [
    # reply -> integer, strict_format, soft_format
    ("9 * 2\nso \\boxed{18}", 1, 1, 1),
    ("so $\\boxed{18}$.", 1, 1, 1),
    ("so \\[\\boxed{\\frac{1}{2}}\\]", 0, 1, 1),
    ("so \\boxed{18} eggs", 1, 0, 1),
    ("\\boxed{9}, \\boxed{18}", 1, 0, 1),
    ("so \\boxed 18", 1, 0, 1),
    ("so \\boxed{}", 0, 0, 0),
    ("so \\boxed{18", 0, 0, 0),
    ("18 \\boxed{18}", 1, 1, 1),
    ("so \\boxed{18}, or {18}.", 1, 0, 1),  # the answer once more, in other braces
    ("so \\boxed{$}$.", 0, 1, 1),
    ("", 0, 0, 0),
]


@pytest.mark.parametrize(("reply", "integer", "strict", "soft"), BOXED)
def test_parts_of_the_boxed_form(reply, integer, strict, soft):
    assert form_shares(Form.BOXED, reply) == dict(zip(FORM_PARTS, (integer, strict, soft), strict=False))


PLACES = [
    (GOOD, "18", "first 9\n\nthen 18"),
    ("so <answer> 18", "18", "so"),
    ("<answer>9</answer> no <answer>18</answer>", "18", "<answer>9</answer> no"),
    ("<answer></answer>", "", ""),
    ("so \\boxed{18}.", "18", "so"),
    ("\\boxed{9} <answer>18</answer>", "18", "\\boxed{9}"),
    ("9 * 2 = 18\n#### 18", "18", "9 * 2 = 18"),
    ("#### 1\n#### 18\n", "18", "#### 1"),
    ("<reasoning>\nnine\n</reasoning> 18", None, "nine"),
    ("<reasoning>\nnine", None, "nine"),
    ("so 18", None, "so 18"),
    ("", None, ""),
]


@pytest.mark.parametrize(("reply", "answer", "reasoning"), PLACES)
def test_where_an_answer_is_and_what_led_to_it(reply, answer, reasoning):
    assert answer_place(reply) == answer and reasoning_of(reply) == reasoning


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("reasoning", ["9 * 2", "two\nlines", ""])
def test_a_reply_that_is_made_in_a_form_has_it(form, reasoning):
    reply = in_form(form, reasoning, "18")
    assert set(form_shares(form, reply).values()) == {1.0} and answer_place(reply) == "18"
    assert not reasoning or reasoning_of(reply) == reasoning
