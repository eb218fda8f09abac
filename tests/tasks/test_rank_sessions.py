"""rank_sessions: what rankings are worth, what is no ranking, and what evaluation measures."""

from math import log2

import pytest

from mem_agent.rewards.sessions import BadRow
from mem_agent.tasks import TaskRow, load_task

ROW = TaskRow("rank them", (), {"shown": 12, "gold": [3, 7]})
NDCG = (1 + 1 / log2(4)) / (1 + 1 / log2(3))
VALID = "<ranking>7,0,3,1,2,4,5,6,8,9</ranking>"
WORST = "<ranking>0,1,2,4,5,6,8,9,10,11</ranking>"


def task():
    return load_task("rank_sessions")


def measured(reply):
    return task().metrics(task().read_answer(reply), reply, ROW)


def test_a_valid_ranking_is_worth_its_ndcg():
    parts = task().reward(VALID, ROW)
    assert parts == {"ranking": pytest.approx(NDCG)} and task().accuracy(parts) > 0.9
    assert not task().malformed(VALID, ROW)


@pytest.mark.parametrize("reply", [
    "", "7,0,3", "<ranking>7,0</ranking>", VALID.replace("9", "12"), VALID.replace("9", "-1"), VALID.replace("9", "7"),
    VALID.replace("9", "nine"), VALID.removesuffix("</ranking>"), f"{VALID} or <ranking>1",
])
def test_any_other_reply_costs_and_is_charged_as_malformed(reply):
    assert task().reward(reply, ROW) == {"format": -1.0} and task().malformed(reply, ROW)
    assert sum(task().reward(WORST, ROW).values()) == 0.0  # every valid ranking is worth more


def test_the_last_ranking_of_a_reply_counts_as_the_last_answer_does():
    for before in ("I will write <ranking>...</ranking> now: ", f"{WORST} No: ", "<ranking>3, "):
        assert task().reward(before + VALID, ROW) == task().reward(VALID, ROW)
        assert measured(before + VALID) == measured(VALID)


def test_metrics_are_of_what_can_be_used():
    expected = {"ndcg@1": 1, "ndcg@10": NDCG, "recall@1": 0.5, "recall@5": 1, "mrr": 1, "valid": 1}
    assert {name: measured(VALID)[name] for name in expected} == pytest.approx(expected)
    broken = measured("<ranking>0, 7, 7, 99")
    assert broken["valid"] == 0.0 and broken["mrr"] == 0.5 and broken["recall@5"] == 0.5
    assert set(measured("").values()) == {0.0} and task().headline in broken


def test_the_solution_is_a_best_ranking():
    assert task().reward(task().solution(ROW), ROW) == {"ranking": pytest.approx(1.0)}
    assert task().solution(TaskRow("", (), {"shown": 2, "gold": [1], "solution": "given"})) == "given"


@pytest.mark.parametrize("change", [{"shown": 0}, {"gold": []}, {"gold": [12]}])
def test_rows_that_ask_nothing_are_named(change):
    with pytest.raises(BadRow, match="rank_sessions"):
        task().reward(VALID, TaskRow("", (), {**ROW.metadata, **change}))
