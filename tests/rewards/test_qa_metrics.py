"""Metrics of answers against golds: QA in SQuAD form, RULER's containment, words in any language, chosen options."""

import pytest

from mem_agent.rewards.qa_metrics import STRING_MATCH_ALL, STRING_MATCH_PART, score, score_answer
from mem_agent.rewards.text_f1 import answer_em, answer_f1, choice_score, chosen_option

# prediction, golds, em, f1, sub_em, sub_em_legacy
QA = [
    # The traps of the published containment, which scores 1 on both.
    ("the", ["Mumbai"], 0, 0, 0, 0),
    (None, ["Mumbai"], 0, 0, 0, 0),
    ("u", ["Mumbai"], 0, 0, 0, 1),  # the legacy metric keeps this one: it is what the old tables measured
    ("Mumbai, India", ["Mumbai"], 0, 2 / 3, 1, 1),  # precision 1/2, recall 1
    ("Navi Mumbaikar", ["Mumbai"], 0, 0, 0, 1),
    ("no no no way", ["way"], 0, 0.4, 1, 1),  # 1 shared of 4 and 1
    ("yes it is", ["yes"], 0, 0, 1, 1),  # yes and no are all or nothing for F1
    ("Ann Lee", ["Bob", "Ann Lee"], 1, 1, 1, 1),
    ("a", ["A"], 1, 1, 1, 1),  # golds made of articles keep them
    ("...", ["..."], 0, 0, 0, 0),
    # em and f1 are SQuAD's, which knows ASCII's punctuation alone.
    ("1939-1945", ["1939–1945"], 0, 0, 1, 0),
    ("《红楼梦》", ["红楼梦"], 0, 0, 1, 1),
    ("巴黎。", ["巴黎"], 0, 0, 1, 1),
    ("Cafe\u0301 Noir", ["Café Noir"], 0, 0.5, 1, 0),
    ("“Beyoncé’s”", ["Beyoncé's"], 0, 0, 1, 0),
]


@pytest.mark.parametrize(("prediction", "golds", "em", "f1", "sub_em", "legacy"), QA)
def test_qa(prediction, golds, em, f1, sub_em, legacy):
    expected = {"em": em, "f1": f1, "sub_em": sub_em, "sub_em_legacy": legacy}
    assert score_answer(prediction, golds) == pytest.approx(expected)


# reply, expected strings, string_match_all, string_match_part
RULER = [
    ("1234567", ["1234567", "7654321"], 1 / 2, 1),
    ("paris", ["PARIS", "City of Light", "Lutetia"], 1 / 3, 1),
    (None, ["Mumbai"], 0, 0),
    ("312345679", ["1234567"], 1, 1),  # characters, not words
    ("New\x07York", ["New\nYork"], 1, 1),  # control characters count as newlines
]


@pytest.mark.parametrize(("reply", "answers", "of_all", "of_any"), RULER)
def test_ruler(reply, answers, of_all, of_any):
    assert score(STRING_MATCH_ALL, reply, answers) == pytest.approx(of_all)
    assert score(STRING_MATCH_PART, reply, answers) == of_any


# prediction, gold, em, f1
WORDS = [
    ("the answer is 7", "7", 0, 0.5),  # words answer is 7: precision 1/3, recall 1
    ("1,000 dollars", "$1000 dollars.", 1, 1),
    ("3.5", "35", 0, 0),
    ("−5", "-5", 1, 1),
    ("no", "Likely no", 0, 2 / 3),  # a word like others
    ("dog dog cat", "dog cat", 0, 0.8),  # 2 shared, 3 + 2 words: a set would give 1
    # Chinese: jieba's words
    ("他住在上海。", "上海", 0, 0.4),  # 他 住 在 上海: 1 of 4, 1 of 1
    ("５月", "5月", 1, 1),
    ("他喜欢 Python 3.5", "python 3.5", 0, 2 / 3),
]


@pytest.mark.parametrize(("prediction", "gold", "em", "f1"), WORDS)
def test_words(prediction, gold, em, f1):
    assert answer_em(prediction, ["other", gold]) == em
    assert answer_f1(prediction, ["other", gold]) == pytest.approx(f1)


# --- multiple choice ------------------------------------------------------------------------------------------------

FOUR = ("(a) You like tea.", "(b) You like coffee.", "(c) You said that you like tea with milk.", "(d) A walk.")
CHOICES = {
    0: ["a"],
    1: ["选项 b", "you like COFFEE!", "a good choice is (b)", "I think B is the correct one."],
    2: ["C.", "c) the milk", "（c）", "The answer is C", "答案是C", "(c), that is (c)", "I would say **C**.",
        "so $\\boxed{\\text{C}}$.", "The best one is C", "C is right"],
    3: ["the answer is a walk"],
    None: ["(a) or (c)", "(e)", None, "a good idea is coffee", "You like tea. You like coffee.", "Not C"],
}


def test_what_a_reply_chooses():
    assert {number: [chosen_option(reply, FOUR) for reply in some] for number, some in CHOICES.items()} == {
        number: [number] * len(some) for number, some in CHOICES.items()}
    assert [chosen_option(reply, ["tea", "coffee"]) for reply in ("b", "coffee")] == [1, 1]  # without labels
    assert chosen_option("(a)", ["(d) x", "(a) y"]) == 1


def test_a_choice_is_worth_all_or_nothing_and_without_one_to_make_there_is_no_score():
    for right in ("You like coffee.", "(b)", "(b) You like coffee."):
        assert [choice_score(reply, [right], FOUR) for reply in ("b", "You like tea.", None)] == [1.0, 0.0, 0.0]
    assert choice_score("b", ["coffee"], FOUR) is None is choice_score("b", ["(b)"], ())
