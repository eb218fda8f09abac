r"""The training reward."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mem_agent.tasks.qa import boxed_exact_match, normalise_answer

# response, golds, reward under answer, reward under published (the first were verified on MemAgent's code)
CASES = [
    (r"\boxed{the beatles}", ["The Beatles"], 1, 1),
    (r"\boxed{the beatles}", ["Beatles"], 1, 0),
    (r"\boxed{\text{Paris}.}", ["Paris"], 1, 0),
    (r"\boxed{Paris}" + "." * 300, ["Paris"], 1, 0),
    (r"\boxed{NewYork}", ["New York"], 0, 1),
    (r"\boxed{\textbf{The \mathrm{Beatles}}}", ["Beatles"], 1, 0),
    (r"\boxed{35\%}", ["35%"], 1, 0),
    (r"\boxed{90^\circ}", ["90°"], 1, 0),
    (r"\boxed{ .5}", ["0.5"], 0, 1),
    (r"\boxed{-5}", ["5"], 0, 0),
    (r"\boxed{C#}", ["C"], 0, 0),
    (r"\boxed{\frac{1}{12}}", [r"\frac{11}{2}"], 0, 0),
    (r"\boxed{World’s “Best”}", ["World's \"Best\""], 1, 0),
    (r"\boxed{The}", ["the"], 1, 1),
    (r"<think>\boxed{Paris}</think> Paris", ["Paris"], 0, 1),
    (r"\boxed{}", [""], 0, 1),
]


@pytest.mark.parametrize(("response", "golds", "answer", "published"), CASES)
def test_rewards(response, golds, answer, published):
    assert boxed_exact_match(response, golds) == answer
    assert boxed_exact_match(response, golds, style="published") == published


def test_published_f1_counts_words_between_blanks():
    worth = {r"\boxed{The Beatles}": 1.0, r"\boxed{Beatles}": 2 / 3, r"\boxed{beatles.}": 0.0, "Beatles": 0.0}
    assert {reply: boxed_exact_match(reply, ["x", "the beatles"], "published_f1") for reply in worth} == worth


@given(st.text(alphabet=st.characters(exclude_characters="{}\\<", exclude_categories=["Cs"]), max_size=30))
def test_every_gold_matches_itself(gold):
    assume(normalise_answer(gold))
    assert boxed_exact_match("So: \\boxed{" + gold + "}.", ["other", gold]) == 1.0
