r"""Numbers as people write them, by hand."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.rewards.plain_number import Number, number_and_unit, read_number

EIGHTEEN = [
    "18", "18.0", "18.", "+18", "018", " 18\n", "$18", "\\$18", "18$", "$18$", "$$18$$", "\\(18\\)", "$\\$18$", "€18",
    "18 €", "**18**", "18.00",
]
OTHERS = [
    ("1,080", 1080), ("1{,}080", 1080), ("1\\,080", 1080), ("109,200,000", 109_200_000), ("12,345.67", "12345.67"),
    (".5", "1/2"), ("0.5", "1/2"), ("-3", -3), ("−3", -3), ("-$3", -3), ("$-3", -3), ("-.5", "-1/2"), ("1/2", "1/2"),
    ("-1/2", "-1/2"), ("\\frac{1}{2}", "1/2"), ("\\dfrac{3}{4}", "3/4"), ("\\frac12", "1/2"), ("1/2,000", "1/2000"),
    ("0", 0), ("-0", 0),
]
NO_NUMBERS = [
    "", " ", ".", "$", "$$", "%", "-", "--5", "-$-5", "1,5", "0,500", "1,0800", "10,00", "1 080", "1e9", "0x10",
    "1_000", "18 eggs", "18x", "9*2", "36/2", "4/4", "1/0", "5/1", "1/2/3", "18 19", "18%%", "18 or 19", "١٨", "Ⅷ",
    "²", "inf", "nan", "1.2.3", "\\frac{36}{2}", "x", "9" * 101,
]


@pytest.mark.parametrize("text", EIGHTEEN)
def test_ways_to_write_eighteen(text):
    assert read_number(text) == Number(Fraction(18)) == number_and_unit(text)


@pytest.mark.parametrize(("text", "value"), OTHERS)
def test_other_numbers(text, value):
    assert read_number(text) == Number(Fraction(value))


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_no_number(text):
    assert read_number(text) is None


UNITS = [
    ("72 dollars", 72), ("$18 per day", 18), ("18\\text{ eggs}", 18), ("18 \\mathrm{cm}", 18), ("1/2 cup", "1/2"),
    ("1,080 km.", 1080), ("-3 degrees", -3), ("18 °C", 18),
    ("18x", None), ("2 x", None), ("18 or 19", None), ("5 and 6", None), ("3 or so", None), ("about 18", None),
    ("18 = 9", None), ("18 cm^2", None), ("eggs", None), ("", None),
]


@pytest.mark.parametrize(("text", "value"), UNITS)
def test_words_behind_a_number(text, value):
    assert number_and_unit(text) == (None if value is None else Number(Fraction(value)))


@pytest.mark.parametrize("text", ["50%", "50\\%", "50 %", "50.0%", "$50\\%$"])
def test_a_percentage_is_its_number_and_its_hundredth(text):
    number = read_number(text)
    assert number == Number(Fraction(50), percent=True)
    for other, same in ((50, True), ("1/2", True), (5000, False), (5, False)):
        assert number.same_as(Number(Fraction(other))) is same is Number(Fraction(other)).same_as(number)
    assert number.same_as(number) and not number.same_as(Number(Fraction(5000), percent=True))


def test_equal_to_so_many_decimals_and_by_so_much():
    third, near = Number(Fraction(1, 3)), Number(Fraction("0.333333"))
    assert third.same_as(near, 5) and not third.same_as(near) and not third.same_as(near, 7)
    tolerance = Fraction(1, 10_000)
    assert Number(Fraction(10_000)).close_to(Number(Fraction(10_001)), tolerance)
    assert not Number(Fraction(10_000)).close_to(Number(Fraction(10_002)), tolerance)
    assert not Number(Fraction(0)).close_to(Number(Fraction("1e-9")), tolerance)


@given(st.integers(-10**12, 10**12), st.integers(0, 3))
def test_separators_and_zeros_say_nothing(value, zeros):
    written = f"{value:,}" + ("." + "0" * zeros if zeros else "")
    assert read_number(written) == read_number(str(value)) == Number(Fraction(value))


@given(st.text(max_size=120))
def test_any_text_is_read_or_not(text):
    for read in (read_number, number_and_unit):
        assert read(text) is None or isinstance(read(text), Number)
