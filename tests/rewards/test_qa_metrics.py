"""Evaluation metrics."""

import json
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mem_agent.rewards.qa_metrics import normalise_squad, score_answer

HOTPOTQA = Path(__file__).resolve().parents[3] / "shared" / "data" / "hotpotqa_distractor_60.json"
ALL_ONE = {"em": 1.0, "f1": 1.0, "sub_em": 1.0, "sub_em_legacy": 1.0}

# prediction, golds, em, f1, sub_em, sub_em_legacy
CASES = [
    ("The Beatles!", ["beatles"], 1, 1, 1, 1),
    # The traps of the published containment: it scores 1 on all four.
    ("the", ["Mumbai"], 0, 0, 0, 0),
    ("...", ["Mumbai"], 0, 0, 0, 0),
    ("", ["Mumbai"], 0, 0, 0, 0),
    ("u", ["Mumbai"], 0, 0, 0, 1),  # the legacy metric keeps this one: it is what the old tables measured
    (None, ["Mumbai"], 0, 0, 0, 0),
    # Containment in words, in one direction.
    ("Mumbai, India", ["Mumbai"], 0, 2 / 3, 1, 1),  # precision 1/2, recall 1
    ("Navi Mumbaikar", ["Mumbai"], 0, 0, 0, 1),
    ("Greenwich Village", ["Greenwich Village, New York City"], 0, 4 / 7, 0, 1),  # precision 1, recall 2/5
    ("York New", ["New York"], 0, 1, 0, 0),
    ("it was New York City", ["New York"], 0, 4 / 7, 1, 1),  # 2 shared of 5 and 2
    # Repeated tokens count as often as both sides have them: 1 shared of 3 and 1.
    ("no no no way", ["way"], 0, 0.4, 1, 1),
    # yes and no are all or nothing for F1.
    ("yes", ["no"], 0, 0, 0, 0),
    ("yes it is", ["yes"], 0, 0, 1, 1),
    ("Yes.", ["yes"], 1, 1, 1, 1),
    ("no", ["no way"], 0, 0, 0, 1),
    ("there is no way", ["no"], 0, 0, 1, 1),
    # Every gold counts.
    ("Ann Lee", ["Bob", "Ann Lee"], 1, 1, 1, 1),
    # Golds made of articles keep them; golds made of punctuation never match.
    ("The The", ["The The"], 1, 1, 1, 1),
    ("a", ["A"], 1, 1, 1, 1),
    ("the", ["A"], 0, 0, 0, 0),
    ("...", ["..."], 0, 0, 0, 0),
    ("", [""], 0, 0, 0, 0),
]


@pytest.mark.parametrize(("prediction", "golds", "em", "f1", "sub_em", "legacy"), CASES)
def test_golden_scores(prediction, golds, em, f1, sub_em, legacy):
    expected = {"em": em, "f1": f1, "sub_em": sub_em, "sub_em_legacy": legacy}
    assert score_answer(prediction, golds) == pytest.approx(expected)


@pytest.mark.parametrize("golds", [[], "Paris"])
def test_golds_must_be_a_list(golds):
    with pytest.raises(ValueError, match="non-empty list"):
        score_answer("Paris", golds)


def test_squad_form():
    assert normalise_squad("  The U.S.A.\tis a\nplace ") == "usa is place"
    assert normalise_squad("theatre") == "theatre"


@given(st.text(max_size=30))
def test_every_gold_matches_itself(gold):
    assume(normalise_squad(gold, keep_articles=True))
    assert score_answer(gold, ["other", gold]) == ALL_ONE


@given(st.text("ab yesno.", max_size=12), st.lists(st.text("ab yesno.", max_size=12), min_size=1, max_size=3))
def test_order_of_the_metrics(prediction, golds):
    scores = score_answer(prediction, golds)
    assert 0 <= scores["f1"] <= 1
    assert scores["em"] <= scores["sub_em"] <= scores["sub_em_legacy"]
    assert scores["em"] <= scores["f1"]
    assert scores == score_answer(prediction, golds[::-1])


def test_every_gold_of_real_data_matches_itself():
    if not HOTPOTQA.exists():
        pytest.skip(f"no {HOTPOTQA.name} beside the repository")
    for row in json.loads(HOTPOTQA.read_text()):
        assert score_answer(row["answer"], [row["answer"]]) == ALL_ONE
