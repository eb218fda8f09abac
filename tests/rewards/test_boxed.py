r"""Extraction of the boxed answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.rewards.boxed import after_thinking, last_boxed, published_boxed

# text, last_boxed, published_boxed
CASES = [
    (r"The capital is \boxed{Rome}.", "Rome", "Rome"),
    (r"\boxed{Paris} no, \boxed{Rome}", "Rome", "Rome"),
    (r"\boxed{ Rome }", "Rome", " Rome "),
    (r"\boxed{\text{Rome}}", r"\text{Rome}", r"\text{Rome}"),
    (r"\boxed{a{b{c}}d} }", "a{b{c}}d", "a{b{c}}d"),
    (r"\boxed{}", "", ""),
    ("\\boxed{two\nlines}", "two\nlines", "two\nlines"),
    (r"\boxed{\fbox{Rome}}", "Rome", r"\fbox{Rome}"),
    (r"\fbox{Rome}", "Rome", None),
    # An escaped brace prints a brace, so it neither opens nor closes.
    (r"\boxed{\{1, 2\}}", r"\{1, 2\}", r"\{1, 2\}"),
    (r"\boxed{a \} b}", r"a \} b", r"a \ "[:-1]),
    (r"\boxed{a \\} b}", r"a \\", r"a \\"),
    # Space forms: a braced answer wins, wherever it stands; the published rule has it the other way round.
    (r"so \boxed 42$ done", "42", "42"),
    (r"\boxed 1 and \boxed 2", "2", "2"),
    ("\\boxed Rome\nnext line", "Rome", "Rome\nnext line"),
    (r"\boxed {Rome}", "Rome", "{Rome}"),
    (r"\boxed{Rome} (see \boxed x)", "Rome", "x)"),
    (r"\boxed x, that is \boxed{Rome}", "Rome", r"x, that is \boxed{Rome}"),
    # Absent or unclosed.
    ("Rome", None, None),
    ("", None, None),
    (r"\boxed", None, None),
    (r"\boxedRome", None, None),
    (r"\boxed{Rome", None, None),
    (r"\boxed{Rome} or \boxed{Par", None, None),
    (r"\boxed{Rome\}", None, "Rome\\"),
]


@pytest.mark.parametrize(("text", "ours", "published"), CASES)
def test_golden_boxes(text, ours, published):
    assert last_boxed(text) == ours
    assert published_boxed(text) == published


def test_thinking_is_cut_at_its_last_end():
    assert after_thinking("a</think>b</think> c") == " c"
    assert after_thinking("no thoughts") == "no thoughts"


PLAIN = st.text(alphabet=st.characters(exclude_characters="{}\\", exclude_categories=["Cs"]))


@given(st.text(), PLAIN, st.text("ab ."))
def test_any_plain_answer_comes_back(before, answer, after):
    assert last_boxed(before + "\\boxed{" + answer + "}" + after) == answer.strip()


@given(st.text(alphabet="\\{}boxedf $\n", max_size=60))
def test_result_is_always_part_of_the_text(text):
    for extract in (last_boxed, published_boxed):
        found = extract(text)
        assert found is None or found in text
