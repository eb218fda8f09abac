r"""``TASK=gsm8k``, ``math`` and ``countdown``: what a reply earns and measures, by hand."""

import pytest

from mem_agent.tasks import TaskRow, load_task

MODES = ("strict", "medium", "loose")
PUBLISHED = "mode=exact correct=1 integer=.5 strict_format=.5 soft_format=.5 tags=.5"
ROW = TaskRow("q?", ("18",))
GOOD = "<reasoning>\n16 - 3 - 4 = 9\n9 * 2 = 18\n</reasoning>\n<answer>\n18\n</answer>"
WRONG = GOOD.replace("\n18\n</a", "\n17\n</a")


def earned(reply, args=""):
    return load_task("gsm8k", args).reward(reply, ROW)


def measured(task, reply, row=ROW):
    return task.metrics(task.read_answer(reply), reply, row)


def test_parts_of_a_right_and_of_a_wrong_reply():
    form = {"integer": 0.05, "strict_format": 0.05, "soft_format": 0.05, "tags": 0.05}
    assert earned(GOOD) == {"correct": 1.0} | form and earned(WRONG) == {"correct": 0.0} | form
    assert earned(WRONG.replace("17", "18.0")) == {"correct": 1.0} | form | {"integer": 0.0}
    assert earned("so \\boxed{18}") == {"correct": 1.0} | dict.fromkeys(form, 0.0) | {"integer": 0.05}
    assert earned(GOOD, PUBLISHED) == {"correct": 1.0} | dict.fromkeys(form, 0.5)
    assert earned(GOOD, "integer=0 strict_format=0 soft_format=0 tags=0") == {"correct": 1.0}


# Golds as GSM8K writes them, with what trips readers: a number behind "answer", currency, percent, calculator marks.
@pytest.mark.parametrize(("reasoning", "gold"), [
    ("$36 * 30 = $<<36*30=1080>>1080.", "1,080"), ("As the answer in percent: 50 / 200 * 100% = 25%", "25"),
    ("The final answer is 3 before 7 is taken away.", "-4"), ("", "18"),
])
@pytest.mark.parametrize("form", ["reasoning", "boxed"])
def test_gold_solutions_are_right_in_every_mode(form, reasoning, gold):
    task, raw = load_task("gsm8k", f"form={form}"), f"{reasoning}\n#### {gold}"
    row = TaskRow("q?", (gold,), {"solution": raw})
    reply = task.solution(row)
    for right in (reply, raw, task.solution(TaskRow("q?", (gold,)))):
        assert [measured(task, right, row)[mode] for mode in MODES] == [1.0] * 3, right
    assert measured(task, reply, row)["format"] == 1.0 and task.accuracy(task.reward(reply, row)) == 1.0
    assert not reasoning or task.reasoning(reply) == reasoning


# --- countdown ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("answer", "numbers", "target", "right"), [
    ("(5 - 3) * (8 + 2)", [3, 5, 8, 2], 20, 1), ("5 * 8 / 2", [3, 5, 8, 2], 20, 0),
    ("5 * 8 / 2 + 3 - 3", [3, 5, 8, 2], 20, 0), ("(5 - 3) * (8 + 2) = 20", [3, 5, 8, 2], 20, 0),
    ("58 / 2 - 3 * 3", [3, 5, 8, 2], 20, 0), ("8 // 3 * 5 * 2", [3, 5, 8, 2], 20, 0), ("", [20], 20, 0),
    ("1 / 3 * 3", [1, 3, 3], 1, 1), ("100000 / 99999", [99999, 100000], 1, 0), ("5 / 2", ["5", "2"], "2.5", 1),
])
def test_sums_of_the_given_numbers_each_once(answer, numbers, target, right):
    task, reply = load_task("countdown"), f"<reasoning>\ntry\n</reasoning>\n<answer>\n{answer}\n</answer>"
    named = TaskRow("q?", (), {"numbers": numbers, "target": target})
    for row in (named, TaskRow("q?", (str(target),), {"numbers": numbers})):  # the gold, where no target is named
        parts = task.reward(reply, row)
        assert parts["correct"] == right == measured(task, reply, row)["right"] == task.accuracy(parts)
        assert set(parts) == {"correct", "strict_format", "soft_format", "tags"}


def test_the_form_counts_from_where_a_reply_went_on():
    row = TaskRow("q?", (), {"numbers": [3, 5], "target": 8, "reply_prefix": "<reasoning>\n"})
    task, behind = load_task("countdown"), "3 and 5\n</reasoning>\n<answer>\n3 + 5\n</answer>"
    assert measured(task, behind, row) == {"right": 1.0, "format": 1.0}
    assert task.reward(behind, row)["strict_format"] > 0
