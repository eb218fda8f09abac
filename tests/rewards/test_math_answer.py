r"""Right and wrong replies in all modes, and that nothing a model writes is waited for.

The table is by hand; where a published code reads a reply in another way, ``rewards/math_answer.py`` says so.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from mem_agent.rewards import math_checker
from mem_agent.rewards.math_answer import Mode, alone_in_its_place, is_right
from mem_agent.rewards.math_checker import math_equal
from mem_agent.tests.helpers.patience import HANGS_AFTER_S


def tag(answer):
    return f"<reasoning>\n3 and 6 and 20\n</reasoning>\n<answer>\n{answer}\n</answer>"


def box(answer):
    return f"3 and 6 and 20, so $\\boxed{{{answer}}}$."


# reply, gold -> strict, medium, loose, exact
CASES = [
    # How the number is written.
    (tag("18"), "18", 1, 1, 1, 1),
    ("<answer>18</answer>", "18", 1, 1, 1, 1),
    ("<answer>\n18", "18", 1, 1, 1, 1),
    (tag("$18"), "18", 1, 1, 1, 0),
    (tag("18."), "18", 1, 1, 1, 0),
    (tag("18.0"), "18", 1, 1, 1, 0),
    (tag("1,080"), "1080", 1, 1, 1, 0),
    (tag("1080"), "1,080", 1, 1, 1, 0),
    (tag("-3"), "-3", 1, 1, 1, 1),
    (tag("−3"), "-3", 1, 1, 1, 0),
    (tag("3"), "-3", 0, 0, 0, 0),
    (tag("17"), "18", 0, 0, 0, 0),
    (tag("1.5"), "15", 0, 0, 0, 0),
    (tag("180"), "18", 0, 0, 0, 0),
    # Words beside it.
    (tag("18 eggs"), "18", 1, 0, 1, 0),
    (tag("$18 per day"), "18", 1, 0, 1, 0),
    (tag("about 18"), "18", 1, 0, 0, 0),
    (tag("18 or 19"), "18", 1, 0, 0, 0),
    (tag("18 or 19"), "19", 0, 0, 0, 0),
    # A value that is still to be worked out.
    (tag("9*2"), "18", 1, 0, 1, 0),
    (tag("36/2"), "18", 1, 0, 1, 0),
    (tag("x = 18"), "18", 1, 0, 1, 0),
    # Percent, and how near is near.
    (tag("25%"), "25", 1, 1, 1, 0),
    (tag("25%"), "0.25", 1, 1, 1, 0),
    (tag("25"), "0.25", 0, 0, 1, 0),
    (tag("0.25"), "25", 0, 0, 1, 0),
    (tag("18.000001"), "18", 1, 0, 1, 0),
    (tag("18.001"), "18", 0, 0, 1, 0),
    (tag("18.01"), "18", 0, 0, 0, 0),
    # Boxes, and GSM8K's own mark.
    (box("18"), "18", 1, 1, 1, 0),
    (box("\\$18"), "18", 1, 1, 1, 0),
    (box("18\\text{ eggs}"), "18", 1, 0, 1, 0),
    ("\\boxed{3}, no: \\boxed{18}", "18", 1, 1, 1, 0),
    ("\\boxed{18}, no: \\boxed{3}", "18", 0, 0, 0, 0),
    ("so \\boxed{18", "18", 0, 0, 1, 0),
    ("9 * 2 = 18\n#### 18", "18", 1, 1, 1, 0),
    ("She answered 5 * 5 - 1 = 24 of them.\n#### 66", "66", 1, 1, 1, 0),
    # No place for an answer.
    ("18", "18", 1, 1, 1, 1),
    ("The answer is 18.", "18", 1, 0, 1, 0),
    ("The answer is 18. Not 20.", "18", 1, 0, 1, 0),
    ("The answer is clear.", "18", 0, 0, 0, 0),
    ("so she has 18", "18", 1, 0, 1, 0),
    ("18 eggs and 3 hens", "18", 0, 0, 0, 0),
    ("<answer></answer> is 18", "18", 1, 0, 1, 0),
    # Nothing.
    ("", "18", 0, 0, 0, 0),
    (tag(""), "18", 0, 0, 0, 0),
    ("no number", "18", 0, 0, 0, 0),
    ("eighteen", "18", 0, 0, 0, 0),
    (tag("18"), "", 0, 0, 0, 0),
    # LaTeX.
    (tag("\\frac{1}{2}"), "\\frac{1}{2}", 1, 1, 1, 1),
    (tag("1/2"), "\\frac12", 1, 1, 1, 0),
    (tag("0.5"), "\\frac{1}{2}", 1, 1, 1, 0),
    (tag("\\frac{2}{4}"), "\\frac{1}{2}", 1, 0, 1, 0),
    (tag("2\\sqrt{2}"), "\\sqrt{8}", 1, 1, 1, 0),
    (box("2\\sqrt{2}"), "$\\sqrt{8}$", 1, 1, 1, 0),
    (tag("2.8284"), "\\sqrt{8}", 0, 0, 1, 0),
    (tag("x^2 + 2x + 1"), "(x+1)^2", 1, 1, 1, 0),
    (tag("x^2 + 2x"), "(x+1)^2", 0, 0, 0, 0),
    (tag("(1, 2)"), "(1,2)", 1, 1, 1, 0),
    (tag("\\{2,1\\}"), "\\{1,2\\}", 1, 1, 1, 0),
    (tag("\\text{east}"), "east", 1, 1, 1, 0),
    (tag("Ann, not ) Bob"), "ann, not ) bob", 1, 1, 1, 0),
    # Of several formulas the published ways take one, strict the first and loose the last; an equation is one.
    (tag("$16$ $17$"), "16", 1, 0, 0, 0),
    (tag("$16$ $17$"), "17", 0, 0, 1, 0),
    (tag("$x+1$ $x+2$"), "x+1", 1, 0, 0, 0),
    (tag("$x+1$ $x+2$"), "x+2", 0, 0, 1, 0),
    (tag("y=x-1"), "x=y+1", 1, 1, 1, 0),
    # A gold that is a whole solution.
    (tag("18"), "9 * 2 = 18\n#### 18", 1, 1, 1, 1),
    (tag("18"), "so \\boxed{18}", 1, 1, 1, 1),
]


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A question has the time that it takes on a busy machine."""
    monkeypatch.setattr(math_checker, "LIMIT_S", int(HANGS_AFTER_S))


@pytest.mark.parametrize(("reply", "gold", "strict", "medium", "loose", "exact"), CASES)
def test_what_each_mode_takes(reply, gold, strict, medium, loose, exact):
    found = {mode: is_right(mode, reply, [gold]) for mode in Mode}
    assert found == {"strict": strict, "medium": medium, "loose": loose, "exact": exact}
    assert found["medium"] <= min(found["strict"], found["loose"])


def test_any_of_the_golds_will_do():
    assert is_right("medium", tag("18"), ["3", "18"]) and not is_right("medium", tag("18"), [])


def test_a_place_that_was_found_already_is_not_looked_for():
    assert is_right("medium", "so \\boxed{3}", ["18"], "18") and alone_in_its_place("so 18") == ""


# --- nothing hangs ---------------------------------------------------------------------------------------------------

LONG = ["\\frac{1}{" * 11_000, "\\boxed{" * 14_000, "(" * 100_000, "9" * 100_000, "answer is " * 10_000]


@pytest.mark.parametrize("reply", LONG, ids=lambda reply: reply[:12])
def test_a_very_long_reply_is_wrong(reply, monkeypatch):
    monkeypatch.setattr(math_checker, "LIMIT_S", 5)
    assert not any(is_right(mode, tag(reply), ["123456"]) for mode in Mode)


@pytest.mark.parametrize("text", ["2^{10^9}", "9^{9^{9^{9}}}"])
def test_a_question_that_hangs_is_wrong_and_the_next_one_is_answered(text, monkeypatch):
    monkeypatch.setattr(math_checker, "LIMIT_S", 1)
    assert not math_equal("close", text, "5")
    monkeypatch.setattr(math_checker, "LIMIT_S", int(HANGS_AFTER_S))
    assert math_equal("close", f"10/{len(text)}", f"20/{2 * len(text)}")


def test_many_threads_ask_one_process():
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(lambda n: math_equal("equal", f"{n}/7", f"{2 * n}/14"), range(8)))


def test_plain_numbers_start_no_process(monkeypatch):
    monkeypatch.setattr(math_checker, "_pool", lambda: pytest.fail("a process was started"))
    for reply, gold, *_ in CASES[:10]:
        for mode in Mode:
            is_right(mode, reply, [gold])
