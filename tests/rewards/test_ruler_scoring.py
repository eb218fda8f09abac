"""RULER's metrics: containment in one direction, any case, over all expected strings; nothing for an empty reply."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.rewards.ruler import METRICS, STRING_MATCH_ALL, STRING_MATCH_PART, UnknownMetric, score
from mem_agent.ruler.tasks import TASKS

# reply, expected strings, string_match_all, string_match_part
CASES = [
    ("The numbers are 1234567 and 7654321.", ["1234567", "7654321"], 1, 1),
    ("1234567", ["1234567", "7654321"], 1 / 2, 1),
    ("nothing", ["1234567", "7654321"], 0, 0),
    ("QWERT, asdfg", ["QWERT", "ASDFG", "ZXCVB", "POIUY"], 2 / 4, 1),
    ("PARIS", ["Paris"], 1, 1),
    ("paris", ["PARIS", "City of Light", "Lutetia"], 1 / 3, 1),
    # The traps of the published containment: the reply inside the expected string is no answer.
    ("", ["Mumbai"], 0, 0),
    (None, ["Mumbai"], 0, 0),
    (" \n\t ", ["Mumbai"], 0, 0),
    ("u", ["Mumbai"], 0, 0),
    ("...", ["Mumbai"], 0, 0),
    # Every expected string counts, not the first alone.
    ("Ann Lee", ["Bob", "Ann Lee"], 1 / 2, 1),
    # RULER matches characters, not words, and does not undo punctuation.
    ("312345679", ["1234567"], 1, 1),
    ("Navi Mumbaikar", ["Mumbai"], 1, 1),
    ("1,234,567", ["1234567"], 0, 0),
    # The order does not matter; naming one twice earns it once.
    ("b a", ["a", "b"], 1, 1),
    ("a a", ["a", "b"], 1 / 2, 1),
    # Control characters count as newlines.
    ("New\x07York", ["New\nYork"], 1, 1),
    ("New\tYork", ["New York"], 0, 0),
]


@pytest.mark.parametrize(("reply", "answers", "of_all", "of_any"), CASES)
def test_golden_scores(reply, answers, of_all, of_any):
    assert score("string_match_all", reply, answers) == pytest.approx(of_all)
    assert score("string_match_part", reply, answers) == of_any


def test_which_task_is_scored_how():
    assert {name for name, task in TASKS.items() if task.metric == STRING_MATCH_PART} == {"qa_1", "qa_2"}
    assert {task.metric for task in TASKS.values()} == {STRING_MATCH_ALL, STRING_MATCH_PART} == set(METRICS)


def test_an_unknown_metric_is_named():
    with pytest.raises(UnknownMetric, match=r"'f1'; allowed: string_match_all, string_match_part"):
        score("f1", "a", ["a"])


@pytest.mark.parametrize("answers", [[], [""], ["a", ""], "a"])
def test_answers_are_a_list_of_texts(answers):
    with pytest.raises(ValueError, match="non-empty strings"):
        score(STRING_MATCH_ALL, "a", answers)


@given(st.text("aB1 \n", max_size=12), st.lists(st.text("aB1", min_size=1, max_size=3), min_size=1, max_size=4))
def test_bounds_and_order(reply, answers):
    of_all, of_any = score(STRING_MATCH_ALL, reply, answers), score(STRING_MATCH_PART, reply, answers)
    assert 0 <= of_all <= of_any <= 1
    assert score(STRING_MATCH_ALL, reply + " ".join(answers), answers) == 1
    assert score(STRING_MATCH_ALL, reply, answers[::-1]) == pytest.approx(of_all)
