"""Answers against golds in English and Chinese: digits count, words are multisets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.rewards.qa_metrics import normalise_squad
from mem_agent.rewards.text_f1 import answer_em, answer_f1, answer_words

CASES = [
    # prediction, golds, em, f1
    ("the answer is 7", ["7"], 0, 0.5),  # words answer is 7: precision 1/3, recall 1
    ("5", ["7"], 0, 0),
    ("7", ["7"], 1, 1),
    ("7 May", ["9 May"], 0, 0.5),
    ("7 May 2023", ["7 May, 2023"], 1, 1),
    ("1,000 dollars", ["1000 dollars"], 1, 1),
    ("$18.", ["18"], 1, 1),
    ("3.5", ["35"], 0, 0),
    ("3.5.", ["3.5"], 1, 1),
    (".5", ["5"], 0, 0),
    (".5", ["0.5"], 1, 1),
    ("-5", ["5"], 0, 0),
    ("−5", ["-5"], 1, 1),
    ("it is -.5", ["it is -0.5"], 1, 1),
    ("1,00", ["100"], 1, 1),  # as SQuAD: no thousands, the comma goes all the same
    ("The Mumbai", ["mumbai"], 1, 1),
    ("a", ["A"], 1, 1),  # nothing else is left
    ("the", ["Mumbai"], 0, 0),
    ("", ["Mumbai"], 0, 0),
    (None, ["Mumbai"], 0, 0),
    ("...", ["..."], 0, 0),
    ("no", ["Likely no"], 0, 2 / 3),  # a word like others
    ("it’s Ann’s", ["it's Ann's"], 1, 1),
    ("2010–2012", ["2010-2012"], 1, 1),
    ("dog dog cat", ["dog cat"], 0, 0.8),  # 2 shared, 3 + 2 words: a set would give 1
    ("dog", ["cat", "dog"], 1, 1),
    ("café au lait", ["CAFÉ AU LAIT"], 1, 1),
    # Chinese: jieba's words
    ("他住在上海。", ["上海"], 0, 0.4),  # 他 住 在 上海: 1 of 4, 1 of 1
    ("上海", ["上海"], 1, 1),
    ("上海！", ["“上海”"], 1, 1),
    ("北京", ["上海"], 0, 0),
    ("５月", ["5月"], 1, 1),
    ("7月", ["9月"], 0, 0.5),
    ("苹果，香蕉", ["苹果 香蕉"], 1, 1),
    ("他喜欢 Python 3.5", ["python 3.5"], 0, 2 / 3),  # 他 喜欢 python 3.5
    ("マンガ", ["マンガ"], 1, 1),
]


@pytest.mark.parametrize(("prediction", "golds", "em", "f1"), CASES)
def test_answers(prediction, golds, em, f1):
    assert answer_em(prediction, golds) == em
    assert answer_f1(prediction, golds) == pytest.approx(f1)


def test_words_of_no_dictionary_are_not_guessed():
    """jieba's model of new words would make one word of the two characters; then a text's words depend on it."""
    assert answer_words("他来到网易杭研大厦")[-3:] == ["杭", "研", "大厦"]


def test_order_counts_for_the_exact_match_alone():
    assert (answer_em("x y", ["y x"]), answer_f1("x y", ["y x"])) == (0, 1)


@pytest.mark.parametrize("golds", ["Mumbai", []])
def test_golds_are_a_list(golds):
    with pytest.raises(ValueError, match="golds must be"):
        answer_f1("Mumbai", golds)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30))
def test_plain_english_is_in_squads_form(text):
    """Without points and signs; a text of articles only keeps them."""
    text = text.replace(".", "").replace("-", "")
    squad = normalise_squad(text) or normalise_squad(text, keep_articles=True)
    assert "".join(answer_words(text)) == squad.replace(" ", "")


@given(st.text(max_size=20), st.lists(st.text(max_size=20), min_size=1, max_size=3))
def test_scores_are_shares_and_a_match_is_the_whole(prediction, golds):
    em, f1 = answer_em(prediction, golds), answer_f1(prediction, golds)
    assert 0 <= em <= f1 <= 1
    assert answer_f1(prediction, [prediction]) == float(bool(answer_words(prediction)))
