"""rank_sessions: what rankings are worth, what is no ranking, and what evaluation measures."""

from math import log2

import pytest

from mem_agent.system.errors import ConfigError
from mem_agent.tasks import TaskRow, load_task
from mem_agent.tasks.rank_sessions import BadRow

ROW = TaskRow("rank them", (), {"shown": 12, "gold": [3, 7]})
IDEAL = 1 + 1 / log2(3)
VALID = "<ranking>7,0,3,1,2,4,5,6,8,9</ranking>"


def task(args=""):
    return load_task("rank_sessions", args)


def test_a_valid_ranking_is_worth_its_ndcg():
    parts = task().reward(VALID, ROW)
    assert parts == {"ranking": pytest.approx((1 + 1 / log2(4)) / IDEAL)} and task().accuracy(parts) > 0.9
    assert task("score=dcg").reward(VALID, ROW) == {"ranking": pytest.approx((1 + 1 / log2(4)) / 2)}
    assert task("at=1").reward(VALID, ROW) == {"ranking": 1.0}
    assert not task().malformed(VALID, ROW)


@pytest.mark.parametrize(
    "reply",
    ["", "7,0,3", "<ranking>7,0</ranking>", VALID.replace("9", "12"), VALID.replace("9", "-1"),
     VALID.replace("9", "7"), VALID.replace("9", "nine"), VALID.replace("9", ""), VALID.removesuffix("</ranking>")],
)
def test_what_is_no_ranking_costs_and_is_charged_as_malformed(reply):
    assert task().reward(reply, ROW) == {"format": -1.0} and task().malformed(reply, ROW)
    assert task("invalid=2").reward(reply, ROW) == {"format": -2.0}
    assert task().accuracy({"format": -1.0}) == 0.0


def test_every_valid_ranking_is_worth_more_than_none():
    worst = "<ranking>0,1,2,4,5,6,8,9,10,11</ranking>"
    assert sum(task().reward(worst, ROW).values()) == 0.0 > sum(task().reward("", ROW).values())


def test_fewer_sessions_than_asked_are_all_named():
    few = TaskRow("", (), {"shown": 2, "gold": [1]})
    assert task().reward("<ranking>1,0</ranking>", few) == {"ranking": 1.0}
    assert task().malformed("<ranking>1</ranking>", few)


def test_metrics_are_of_what_can_be_used():
    measured = task().metrics(VALID, ROW)
    ndcg = (1 + 1 / log2(4)) / IDEAL
    expected = {"ndcg@1": 1, "ndcg@10": ndcg, "recall@1": 0.5, "recall@5": 1, "mrr": 1, "valid": 1}
    assert {name: measured[name] for name in expected} == pytest.approx(expected)
    assert task().headline in measured
    broken = task().metrics("<ranking>0, 7, 7, 99", ROW)
    assert broken["valid"] == 0.0 and broken["mrr"] == 0.5 and broken["recall@5"] == 0.5
    assert set(task().metrics("", ROW).values()) == {0.0}


def test_an_answer_that_was_read_already_measures_alike():
    assert task().of_answers().metrics(task().read_answer(VALID), ROW) == task().metrics(VALID, ROW)
    assert task().read_answer("nothing") == ""


def test_the_solution_is_a_best_ranking():
    reply = task().solution(ROW)
    assert task().reward(reply, ROW) == {"ranking": pytest.approx(1.0)}
    assert task().solution(TaskRow("", (), {"shown": 2, "gold": [1], "solution": "given"})) == "given"


@pytest.mark.parametrize("change", [{"shown": 0}, {"gold": []}, {"gold": [12]}])
def test_rows_that_ask_nothing_are_told(change):
    with pytest.raises(BadRow, match=r"rank_sessions needs metadata\.(shown|gold)"):
        task().reward(VALID, TaskRow("", (), {**ROW.metadata, **change}))


@pytest.mark.parametrize("args", ["score=map", "at=0", "k=1"])
def test_settings_that_mean_nothing_are_refused(args):
    with pytest.raises(ConfigError, match="TASK_ARGS"):
        task(args)
