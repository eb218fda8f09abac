r"""Numbers as people write them, and sums that a model wrote, exactly and never run."""

from fractions import Fraction

import pytest

from mem_agent.rewards.math_answer import Number, number_and_unit, read_number
from mem_agent.tasks.math import exact_value

NUMBERS = {
    "18": "18 18.0 18. +18 018 $18 \\$18 18$ $18$ $$18$$ \\(18\\) €18 **18** 18.00".split(),
    "1080": ["1,080", "1{,}080", "1\\,080"], "1/2": [".5", "0.5", "1/2", "\\frac{1}{2}", "\\frac12"],
    "-3": ["-3", "−3", "-$3", "$-3"],
}
NO_NUMBERS = ["", ".", "$", "--5", "-$-5", "1,5", "0,500", "1,0800", "1 080", "1e9", "0x10", "18 eggs", "9*2", "36/2",
              "1/0", "18 or 19", "١٨", "nan", "1.2.3", "9" * 101]


@pytest.mark.parametrize(("value", "text"), [(value, text) for value, texts in NUMBERS.items() for text in texts])
def test_ways_to_write_a_number(value, text):
    assert read_number(text) == Number(Fraction(value)) == number_and_unit(text)


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_other_texts_are_no_number(text):
    assert read_number(text) is None


UNITS = [("72 dollars", 72), ("$18 per day", 18), ("18\\text{ eggs}", 18), ("1/2 cup", "1/2"), ("1,080 km.", 1080),
         ("18x", None), ("18 or 19", None), ("about 18", None), ("18 = 9", None), ("18 cm^2", None), ("eggs", None)]


@pytest.mark.parametrize(("text", "value"), UNITS)
def test_words_behind_a_number(text, value):
    assert number_and_unit(text) == (None if value is None else Number(Fraction(value)))


@pytest.mark.parametrize("text", ["50%", "50\\%", "50 %", "$50\\%$"])
def test_a_percentage_is_its_number_and_its_hundredth(text):
    number = read_number(text)
    assert number == Number(Fraction(50), percent=True)
    for other, same in ((50, True), ("1/2", True), (5000, False), (5, False)):
        assert number.same_as(Number(Fraction(other))) is same is Number(Fraction(other)).same_as(number)


SUMS = [
    ("(5 + 3) * 2 / 4", 4, [5, 3, 2, 4]), ("1 / 3 * 3", 1, [1, 3, 3]), ("8 / 4 / 2", 1, [8, 4, 2]),
    ("2 + 3 * 4", 14, [2, 3, 4]), ("1 / 3", Fraction(1, 3), [1, 3]), ("(1\n+ 2)", 3, [1, 2]), ("18", 18, [18]),
]
NO_SUMS = ["", "()", "2**10**9", "7 // 2", "-3 + 5", "1e9", "2.5", "08 + 1", "abs(3)", "3, 4", "3 + 5 = 8", "3 5",
           "1 / (2 - 2)", "__import__('os')", "(" * 199, "1+" * 50_000]


@pytest.mark.parametrize(("text", "value", "numbers"), SUMS)
def test_exact_values(text, value, numbers):
    assert exact_value(text) == (value, numbers)


@pytest.mark.parametrize("text", NO_SUMS, ids=lambda text: repr(text[:20]))
def test_other_texts_are_no_sum(text):
    assert exact_value(text) is None
