r"""``TASK=gsm8k``, ``math`` and ``countdown``: what a reply earns and measures, by hand."""

import pytest

from mem_agent.config import Config
from mem_agent.hooks.reader import task_of
from mem_agent.hooks.sample import Sample
from mem_agent.system.errors import MemAgentError
from mem_agent.tasks import TaskRow, load_task

MODES = ("strict", "medium", "loose")
PUBLISHED = "mode=exact correct=1 integer=.5 strict_format=.5 soft_format=.5 tags=.5"
ROW = TaskRow("q?", ("18",))
GOOD = "<reasoning>\n16 - 3 - 4 = 9\n9 * 2 = 18\n</reasoning>\n<answer>\n18\n</answer>"
WRONG = GOOD.replace("\n18\n</a", "\n17\n</a")


def earned(reply, args="", row=ROW):
    return load_task("gsm8k", args).reward(reply, row)


def measured(task, reply, row=ROW):
    return task.metrics(task.read_answer(reply), reply, row)


def test_parts_of_a_right_and_of_a_wrong_reply():
    form = {"integer": 0.05, "strict_format": 0.05, "soft_format": 0.05, "tags": 0.05}
    assert earned(GOOD) == {"correct": 1.0} | form and earned(WRONG) == {"correct": 0.0} | form
    assert earned(WRONG.replace("17", "18.0")) == {"correct": 1.0} | form | {"integer": 0.0}
    assert earned("so \\boxed{18}") == {"correct": 1.0} | dict.fromkeys(form, 0.0) | {"integer": 0.05}
    assert earned(GOOD, PUBLISHED) == {"correct": 1.0} | dict.fromkeys(form, 0.5)
    assert earned(GOOD, "integer=0 strict_format=0 soft_format=0 tags=0") == {"correct": 1.0}
    assert earned(GOOD, row=TaskRow("q?", ()))["correct"] == 0.0


@pytest.mark.parametrize("nothing", ["", "no number", "<answer>\n\n</answer>", "\\boxed{}", "####"])
@pytest.mark.parametrize("form", ["reasoning", "boxed"])
def test_nothing_is_worth_nothing(nothing, form):
    task = load_task("gsm8k", f"form={form} tags=0")
    assert set(task.reward(nothing, ROW).values()) == {0.0} == set(measured(task, nothing).values())
    assert task.read_answer(nothing) == ""


def test_the_answer_is_the_outcome_whatever_it_weighs_and_medium_decides_right_and_wrong():
    task = load_task("gsm8k", "correct=4 tags=2")
    assert task.accuracy(task.reward(GOOD, ROW)) == 1.0 and task.accuracy(task.reward(WRONG, ROW)) == 0.0
    assert task.slow and not task.needs_document and task.headline == "medium"


@pytest.mark.parametrize(("mode", "right"), [("strict", 1), ("medium", 0), ("loose", 1), ("exact", 0)])
def test_the_mode_of_training_is_a_setting(mode, right):
    assert earned("<answer>18 eggs</answer>", f"mode={mode}")["correct"] == right


def test_metrics():
    assert measured(load_task("gsm8k"), GOOD.replace("\n18\n</a", "\n18 eggs\n</a")) == {
        "strict": 1.0, "medium": 0.0, "loose": 1.0, "exact": 0.0, "format": 1.0}
    assert measured(load_task("gsm8k", "form=boxed"), "\\boxed{18}")["format"] == 1.0


# Golds as GSM8K writes them, with what trips readers: a number behind "answer", currency, percent, calculator marks.
SOLUTIONS = [
    ("$36 * 30 = $<<36*30=1080>>1080.", "1,080"),
    ("They answered 5 * 5 - 1 = <<5*5-1=24>>24 times, 48 + 16 = <<48+16=64>>64.", "66"),
    ("As the answer in percent: 50 / 200 * 100% = 25%", "25"),
    ("The final answer is 3 before 7 is taken away.", "-4"),
    ("The answer: half of .5", ".25"),
    ("", "18"),
]


@pytest.mark.parametrize(("reasoning", "gold"), SOLUTIONS)
@pytest.mark.parametrize("form", ["reasoning", "boxed"])
def test_gold_solutions_are_right_in_every_mode(form, reasoning, gold):
    task, raw = load_task("gsm8k", f"form={form}"), f"{reasoning}\n#### {gold}"
    row = TaskRow("q?", (gold,), {"solution": raw})
    reply = task.solution(row)
    for right in (reply, raw, task.solution(TaskRow("q?", (gold,)))):
        assert [measured(task, right, row)[mode] for mode in MODES] == [1.0] * 3, right
    assert measured(task, reply, row)["format"] == 1.0 and task.accuracy(task.reward(reply, row)) == 1.0
    assert not reasoning or task.reasoning(reply) == reasoning


def test_a_solution_in_a_form_stays_as_it_is():
    row = TaskRow("q?", ("18",), {"solution": GOOD})
    assert load_task("gsm8k").solution(row) == GOOD == load_task("gsm8k", "form=boxed").solution(row)


def test_settings_reach_the_rows_of_the_runs_task():
    config = Config(task="gsm8k", task_args="form=boxed")
    for metadata in ({}, {"task": "gsm8k"}):
        assert task_of(config, Sample(prompt="q?", metadata=metadata)).settings.form == "boxed"
    assert task_of(config, Sample(prompt="q?", metadata={"task": "math"})).settings.form == "reasoning"


# --- countdown ------------------------------------------------------------------------------------------------------

NUMBERS = TaskRow("q?", ("20",), {"numbers": [3, 5, 8, 2], "target": 20})


def answering(answer):
    return f"<reasoning>\ntry\n</reasoning>\n<answer>\n{answer}\n</answer>"


@pytest.mark.parametrize(("answer", "right"), [
    ("(5 - 3) * (8 + 2)", 1), ("((5-3))*(2+8)", 1), ("5 * 8 / 2", 0), ("5 * 8 / 2 + 3 - 3", 0), ("20", 0),
    ("(5 - 3) * (8 + 2) = 20", 0), ("-3 + 5 + 8 * 2", 0), ("58 / 2 - 3 * 3", 0), ("8 // 3 * 5 * 2", 0), ("", 0),
    ("__import__('os')", 0),
])
def test_sums_of_the_given_numbers(answer, right):
    task, reply = load_task("countdown"), answering(answer)
    parts = task.reward(reply, NUMBERS)
    assert parts["correct"] == right == measured(task, reply, NUMBERS)["right"] == task.accuracy(parts)
    assert set(parts) == {"correct", "strict_format", "soft_format", "tags"}


@pytest.mark.parametrize(("sum_", "numbers", "target", "right"), [
    ("1 / 3 * 3", [1, 3, 3], 1, 1), ("100000 / 99999", [99999, 100000], 1, 0), ("5 / 2", ["5", "2"], "2.5", 1),
    ("3 + 3", [3, 3], 6, 1), ("3 + 3", [3], 6, 0),
])
def test_values_are_exact_and_a_number_is_used_as_often_as_it_is_given(sum_, numbers, target, right):
    row = TaskRow("q?", (), {"numbers": numbers, "target": target})
    assert measured(load_task("countdown"), answering(sum_), row)["right"] == right
    gold = TaskRow("q?", (str(target),), {"numbers": numbers})  # the target, where the row names none
    assert measured(load_task("countdown"), answering(sum_), gold)["right"] == right


def test_the_form_counts_from_where_a_reply_went_on():
    row = TaskRow("q?", (), {"numbers": [3, 5], "target": 8, "reply_prefix": "<reasoning>\n"})
    task, behind = load_task("countdown"), "3 and 5\n</reasoning>\n<answer>\n3 + 5\n</answer>"
    assert measured(task, behind, row) == {"right": 1.0, "format": 1.0}
    assert task.reward(behind, row)["strict_format"] > 0


@pytest.mark.parametrize("metadata", [{}, {"numbers": [3]}, {"target": 3}])
def test_a_row_that_asks_nothing_is_named(metadata):
    with pytest.raises(MemAgentError, match="countdown"):
        load_task("countdown").reward("", TaskRow("q?", (), metadata))
