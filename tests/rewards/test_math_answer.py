r"""Right and wrong replies in all modes, numbers as people write them, and that nothing a model writes is waited for.

The table is by hand; where a published code reads a reply in another way, ``rewards/math_answer.py`` says so.
"""

from fractions import Fraction

import pytest

from mem_agent.rewards import math_answer
from mem_agent.rewards.math_answer import MODES, Number, is_right, math_equal, number_and_unit, read_number
from mem_agent.tests.helpers.patience import HANGS_AFTER_S


def tag(answer):
    return f"<reasoning>\n3 and 6 and 20\n</reasoning>\n<answer>\n{answer}\n</answer>"


def box(answer):
    return f"3 and 6 and 20, so $\\boxed{{{answer}}}$."


# reply, gold -> strict, medium, loose, exact
CASES = [
    # How the number is written.
    (tag("18"), "18", 1, 1, 1, 1),
    (tag("1080"), "1,080", 1, 1, 1, 0),
    (tag("3"), "-3", 0, 0, 0, 0),
    # Words beside it; a value that is still to be worked out.
    (tag("18 eggs"), "18", 1, 0, 1, 0),
    (tag("18 or 19"), "18", 1, 0, 0, 0),
    (tag("36/2"), "18", 1, 0, 1, 0),
    # Percent, and how near is near.
    (tag("25%"), "0.25", 1, 1, 1, 0),
    (tag("0.25"), "25", 0, 0, 1, 0),
    (tag("18.000001"), "18", 1, 0, 1, 0),
    (tag("18.001"), "18", 0, 0, 1, 0),
    (tag("18.01"), "18", 0, 0, 0, 0),
    # Boxes, and GSM8K's own mark.
    ("so \\boxed{18", "18", 0, 0, 1, 0),
    ("9 * 2 = 18\n#### 18", "18", 1, 1, 1, 0),
    # No place for an answer.
    ("18", "18", 1, 1, 1, 1),
    ("The answer is 18. Not 20.", "18", 1, 0, 1, 0),
    ("", "18", 0, 0, 0, 0),
    # LaTeX.
    (tag("0.5"), "\\frac{1}{2}", 1, 1, 1, 0),
    (box("2\\sqrt{2}"), "$\\sqrt{8}$", 1, 1, 1, 0),
    (tag("x^2 + 2x + 1"), "(x+1)^2", 1, 1, 1, 0),
    # Of several formulas the published ways take one, strict the first and loose the last.
    (tag("$x+1$ $x+2$"), "x+1", 1, 0, 0, 0),
    (tag("$x+1$ $x+2$"), "x+2", 0, 0, 1, 0),
    # A gold that is a whole solution.
    (tag("18"), "9 * 2 = 18\n#### 18", 1, 1, 1, 1),
]


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A question has the time that it takes on a busy machine."""
    monkeypatch.setattr(math_answer, "LIMIT_S", int(HANGS_AFTER_S))


@pytest.mark.parametrize(("reply", "gold", "strict", "medium", "loose", "exact"), CASES)
def test_modes(reply, gold, strict, medium, loose, exact):
    found = {mode: is_right(mode, reply, ["other", gold]) for mode in MODES}
    assert found == {"strict": strict, "medium": medium, "loose": loose, "exact": exact}
    assert found["medium"] <= min(found["strict"], found["loose"])


@pytest.mark.parametrize("reply", ["\\frac{1}{" * 11_000, "9" * 100_000], ids=["fractions", "digits"])
def test_a_very_long_reply_is_wrong(reply, monkeypatch):
    monkeypatch.setattr(math_answer, "LIMIT_S", 5)
    assert not any(is_right(mode, tag(reply), ["123456"]) for mode in MODES)


def test_a_question_that_hangs_is_wrong_and_the_next_one_is_answered(monkeypatch):
    monkeypatch.setattr(math_answer, "LIMIT_S", 1)
    assert not math_equal("close", "9^{9^{9^{9}}}", "5")
    monkeypatch.setattr(math_answer, "LIMIT_S", int(HANGS_AFTER_S))
    assert math_equal("close", "10/7", "20/14")


# --- numbers, read exactly --------------------------------------------------------------------------

NUMBERS = {
    "18": ["18", "18.0", "18.", "+18", "018", "$18", "\\$18", "$$18$$", "\\(18\\)", "€18", "**18**"],
    "1080": ["1,080", "1{,}080", "1\\,080"], "1/2": [".5", "1/2", "\\frac{1}{2}", "\\frac12"],
    "-3": ["-3", "−3", "-$3", "$-3"],
}
NO_NUMBERS = ["", "$", "--5", "-$-5", "1,5", "0,500", "1 080", "1e9", "0x10", "9*2", "36/2", "1/0", "18 or 19", "١٨",
              "1.2.3", "9" * 101]
UNITS = {"72 dollars": 72, "$18 per day": 18, "18\\text{ eggs}": 18, "1/2 cup": Fraction(1, 2), "1,080 km.": 1080,
         **dict.fromkeys(["18x", "18 or 19", "about 18", "18 = 9", "18 cm^2", "eggs"])}


def test_ways_to_write_a_number():
    for value, texts in NUMBERS.items():
        assert [read_number(text) for text in texts] == [Number(Fraction(value))] * len(texts)
    assert not any(map(read_number, NO_NUMBERS))
    assert {text: (found := number_and_unit(text)) and found.value for text in UNITS} == UNITS
