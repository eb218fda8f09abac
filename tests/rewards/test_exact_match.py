r"""The training reward."""

import json
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mem_agent.rewards.exact_match import boxed_exact_match, normalise_answer

HOTPOTQA = Path(__file__).resolve().parents[3] / "shared" / "data" / "hotpotqa_distractor_60.json"

# response, golds, reward under answer, reward under published.
# The first seven published values were verified on MemAgent's code (memagent_rememr1.md, A3).
CASES = [
    (r"\boxed{the beatles}", ["The Beatles"], 1, 1),
    (r"\boxed{the beatles}", ["Beatles"], 1, 0),
    (r"\boxed{Paris.}", ["Paris"], 1, 0),
    (r"\boxed{\text{Paris}}", ["Paris"], 1, 0),
    (r"\boxed {Paris}", ["Paris"], 1, 0),
    (r"\boxed{Paris}" + "." * 300, ["Paris"], 1, 0),
    (r"\boxed{Rome} \boxed{Paris}", ["Paris"], 1, 1),
    (r"\boxed{Rome} \boxed{Paris}", ["Rome"], 0, 0),
    # All golds count, not only the first.
    (r"\boxed{Ann Lee}", ["Ann", "Ann Lee"], 1, 1),
    # Whitespace: collapsed by answer, deleted by published.
    (r"\boxed{New  York}", ["new york"], 1, 1),
    (r"\boxed{NewYork}", ["New York"], 0, 1),
    # LaTeX around plain answers.
    (r"\boxed{\textbf{The \mathrm{Beatles}}}", ["Beatles"], 1, 0),
    (r"\boxed{35\%}", ["35%"], 1, 0),
    (r"\boxed{35\%}", ["35"], 0, 1),
    (r"\boxed{\$5 million}", ["$5 million"], 1, 0),
    (r"\boxed{90^\circ}", ["90°"], 1, 0),
    (r"\boxed{\left(1, 2\right)}", ["(1,2)"], 0, 1),
    (r"\boxed{1\!0}", ["10"], 1, 1),
    (r"\boxed{ .5}", ["0.5"], 0, 1),
    # What stands between the ends, signs and symbols carry meaning.
    (r"\boxed{3,677}", ["3677"], 0, 0),
    (r"\boxed{-5}", ["5"], 0, 0),
    (r"\boxed{.5}", ["5"], 0, 0),
    (r"\boxed{C#}", ["C"], 0, 0),
    (r"\boxed{\frac{1}{12}}", [r"\frac{11}{2}"], 0, 0),
    (r"\boxed{x^{10}}", ["x^10"], 0, 0),
    (r"\boxed{Paris, France}", ["Paris"], 0, 0),
    # Typography.
    (r"\boxed{World’s “Best”}", ["World's \"Best\""], 1, 0),
    (r"\boxed{1969–1974}", ["1969-1974"], 1, 0),
    (r"\boxed{Pedro Rodri" + "\u0301" + "guez}", ["Pedro Rodríguez"], 1, 0),
    # Articles: only leading ones, and never the whole answer.
    (r"\boxed{The}", ["the"], 1, 1),
    (r"\boxed{\"The\" Who}", ["Who"], 0, 0),
    (r"\boxed{the “Who”}", ["Who"], 1, 0),
    (r"\boxed{Theresa}", ["resa"], 0, 0),
    # Thinking.
    (r"<think>\boxed{Rome}</think> \boxed{Paris}", ["Paris"], 1, 1),
    (r"<think>\boxed{Paris}</think> Paris", ["Paris"], 0, 1),
    # Nothing never matches.
    ("", ["Paris"], 0, 0),
    ("Paris", ["Paris"], 0, 0),
    (r"\boxed{}", ["Paris"], 0, 0),
    (r"\boxed{}", [""], 0, 1),
    (r"\boxed{...}", ["..."], 0, 1),
    (r"\boxed{ }", [" ", "\n"], 0, 1),
]


@pytest.mark.parametrize(("response", "golds", "answer", "published"), CASES)
def test_golden_rewards(response, golds, answer, published):
    assert boxed_exact_match(response, golds) == answer
    assert boxed_exact_match(response, golds, style="published") == published


@pytest.mark.parametrize("golds", [[], "Paris"])
def test_golds_must_be_a_list(golds):
    with pytest.raises(ValueError, match="non-empty list"):
        boxed_exact_match(r"\boxed{Paris}", golds)


PLAIN = st.text(alphabet=st.characters(exclude_characters="{}\\<", exclude_categories=["Cs"]), max_size=30)


@given(PLAIN)
def test_every_gold_matches_itself(gold):
    assume(normalise_answer(gold))
    assert boxed_exact_match("So: \\boxed{" + gold + "}.", ["other", gold]) == 1.0


@given(st.text(alphabet="aAthe .,'-#5\u2019(", max_size=20))
def test_normalisation_is_idempotent(text):
    assert normalise_answer(normalise_answer(text)) == normalise_answer(text)


def test_every_gold_of_real_data_matches_itself():
    if not HOTPOTQA.exists():
        pytest.skip(f"no {HOTPOTQA.name} beside the repository")
    for row in json.loads(HOTPOTQA.read_text()):
        for style in ("answer", "published"):
            assert boxed_exact_match(f"It is \\boxed{{{row['answer']}}}.", [row["answer"]], style) == 1.0
