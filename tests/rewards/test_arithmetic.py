"""Sums that a model wrote, exactly and never run."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.rewards.arithmetic import MOST_CHARACTERS, exact_value

SUMS = [
    ("18", 18, [18]),
    ("(5 + 3) * 2 / 4", 4, [5, 3, 2, 4]),
    ("1 / 3 * 3", 1, [1, 3, 3]),
    ("3 - 1 - 1", 1, [3, 1, 1]),
    ("8 / 4 / 2", 1, [8, 4, 2]),
    ("2 + 3 * 4", 14, [2, 3, 4]),
    ("1 / 3", Fraction(1, 3), [1, 3]),
    ("3 - 5", -2, [3, 5]),
    ("(1\n+ 2)", 3, [1, 2]),
    ("((((7))))", 7, [7]),
    ("99999999999999999999 * 99999999999999999999", 99999999999999999999**2, [99999999999999999999] * 2),
]
NO_SUMS = [
    "", "()", "2**10**9", "7 // 2", "-3 + 5", "3 - (-5)", "1e9", "2.5", "08 + 1", "abs(3)", "3(4)", "3, 4",
    "3 + 5 = 8", "3 5", "3 +", "(3", "3 × 5", "\\frac{1}{2}", "1 / (2 - 2)", "__import__('os')",
    "(" * 90 + "1" + ")" * 90 + "+", "(" * 199, "1+" * 50_000, "9" * 100_000,
]


@pytest.mark.parametrize(("text", "value", "numbers"), SUMS)
def test_exact_values(text, value, numbers):
    assert exact_value(text) == (value, numbers)


@pytest.mark.parametrize("text", NO_SUMS, ids=lambda text: repr(text[:20]))
def test_what_is_no_sum(text):
    assert exact_value(text) is None


def trees(numbers):
    return st.recursive(numbers, lambda part: st.tuples(part, st.sampled_from("+-*/"), part), max_leaves=12)


def written(tree):
    return str(tree) if isinstance(tree, int) else f"({written(tree[0])} {tree[1]} {written(tree[2])})"


def worth(tree):
    if isinstance(tree, int):
        return Fraction(tree)
    a, b = worth(tree[0]), worth(tree[2])
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}[tree[1]]()


@given(trees(st.integers(0, 99)))
def test_any_sum_has_the_value_of_its_tree(tree):
    text = written(tree)
    try:
        expected = worth(tree)
    except ZeroDivisionError:
        expected = None
    found = exact_value(text)
    if len(text) > MOST_CHARACTERS or expected is None:
        assert found is None
    else:
        assert found is not None and found[0] == expected


@given(st.text("0123456789+-*/() .e_x=", max_size=60))
def test_any_text_is_a_sum_or_none(text):
    found = exact_value(text)
    assert found is None or isinstance(found[0], Fraction)
