r"""``TASK=countdown``: sums of given numbers, by hand."""


import pytest

from mem_agent.rewards.reply_form import in_form
from mem_agent.tasks import TaskRow, load_task
from mem_agent.tasks.countdown import BadRow

ROW = TaskRow("q?", ("20",), {"numbers": [3, 5, 8, 2], "target": 20})


def reply(answer):
    return f"<reasoning>\ntry\n</reasoning>\n<answer>\n{answer}\n</answer>"


ANSWERS = [
    ("(5 - 3) * (8 + 2)", 1), ("(5-3)*(2+8)", 1), ("((5 - 3)) * (8 + 2)", 1), ("(8 + 2) / (1 / (5 - 3))", 0),
    ("5 * 8 / 2", 0), ("(5 - 3) * 8 + 2 + 2", 0), ("20", 0), ("5 * 8 / 2 + 3 - 3", 0), ("3 * 5 + 8 / 2", 0),
    ("(5 - 3) * (8 + 2) = 20", 0), ("-3 + 5 + 8 * 2", 0), ("58 / 2 - 3 * 3", 0), ("5 - 3 * 8 + 2", 0), ("", 0),
    ("no", 0), ("(5 - 3) * 10.0", 0), ("8 ** 2 - 5 * 3", 0), ("8 // 3 * 5 * 2", 0),
    ("5 / (3 - 3)", 0), ("abs(3 - 5) * (8 + 2)", 0), ("__import__('os')", 0), ("(5 - 3) * (8 + 2); 1", 0),
    ("5 - 3) * (8 + 2", 0), ("(5 - 3) × (8 + 2)", 0),
]


@pytest.mark.parametrize(("answer", "right"), ANSWERS, ids=lambda part: str(part)[:20])
def test_right_and_wrong_sums(answer, right):
    task = load_task("countdown")
    parts, measured = task.reward(reply(answer), ROW), task.metrics(reply(answer), ROW)
    assert parts["correct"] == right == measured["right"] == task.accuracy(parts)
    assert set(parts) == {"correct", "strict_format", "soft_format", "tags"} and set(measured) == {"right", "format"}


def test_values_are_exact():
    row = TaskRow("q?", (), {"numbers": [1, 3, 3], "target": 1})
    assert load_task("countdown").metrics(reply("1 / 3 * 3"), row)["right"] == 1.0
    near = TaskRow("q?", (), {"numbers": [99999, 100000], "target": 1})
    assert load_task("countdown").metrics(reply("100000 / 99999"), near)["right"] == 0.0  # off by 0.00001


def test_the_form_counts_from_where_a_reply_went_on():
    row = TaskRow("q?", (), {"numbers": [3, 5], "target": 8, "reply_prefix": "<reasoning>\n"})
    task = load_task("countdown")
    behind = "3 and 5\n</reasoning>\n<answer>\n3 + 5\n</answer>"
    assert task.reward(behind, row) == task.reward("<reasoning>\n" + behind, TaskRow("q?", (), dict(row.metadata)
                                                                                      | {"reply_prefix": ""}))
    assert task.metrics(behind, row) == {"right": 1.0, "format": 1.0}


def test_the_target_is_the_gold_where_the_row_names_none():
    task = load_task("countdown")
    assert task.metrics(reply("3 + 5"), TaskRow("q?", ("8",), {"numbers": [3, 5]}))["right"] == 1.0
    assert task.metrics(reply("5 / 2"), TaskRow("q?", (), {"numbers": [5, 2], "target": "2.5"}))["right"] == 1.0
    assert task.metrics("so \\boxed{3 + 5}", TaskRow("q?", ("8",), {"numbers": ["3", "5"]}))["right"] == 1.0


def test_a_number_is_used_as_often_as_it_is_given():
    row = TaskRow("q?", ("6",), {"numbers": [3, 3]})
    task = load_task("countdown")
    assert task.metrics(reply("3 + 3"), row)["right"] == 1.0
    assert task.metrics(reply("3 + 3"), TaskRow("q?", ("6",), {"numbers": [3, 3, 3]}))["right"] == 0.0
    assert task.metrics(reply("3 + 3"), TaskRow("q?", ("6",), {"numbers": [3]}))["right"] == 0.0


@pytest.mark.parametrize("metadata", [{}, {"numbers": [3]}, {"target": 3}])
def test_a_row_that_asks_nothing_is_named(metadata):
    with pytest.raises(BadRow, match=r"a countdown row needs metadata\.numbers"):
        load_task("countdown").reward("", TaskRow("q?", (), metadata))


def test_its_solution_is_the_rows():
    task, right = load_task("countdown"), "(5 - 3) * (8 + 2)"
    row = TaskRow("q?", (), {**ROW.metadata, "solution": in_form(task.form, "", right)})
    assert task.metrics(task.solution(row), row) == {"right": 1.0, "format": 1.0}
    assert task.solution(ROW) == "" and load_task("countdown", "correct=2").accuracy({"correct": 2.0}) == 1.0
