r"""``TASK=gsm8k`` and ``math``: what a reply earns and measures, by hand."""

import pytest

from mem_agent.config import Config
from mem_agent.hooks.sample import Sample
from mem_agent.hooks.task_row import task_of
from mem_agent.tasks import TaskRow, load_task

MODES = ("strict", "medium", "loose")
PUBLISHED = "mode=exact correct=1 integer=.5 strict_format=.5 soft_format=.5 tags=.5"
ROW = TaskRow("q?", ("18",))
GOOD = "<reasoning>\n16 - 3 - 4 = 9\n9 * 2 = 18\n</reasoning>\n<answer>\n18\n</answer>"
WRONG = GOOD.replace("\n18\n</a", "\n17\n</a")


def earned(reply, args="", row=ROW):
    return load_task("gsm8k", args).reward(reply, row)


def test_parts_of_a_right_and_of_a_wrong_reply():
    form = {"integer": 0.05, "strict_format": 0.05, "soft_format": 0.05, "tags": 0.05}
    assert earned(GOOD) == {"correct": 1.0} | form and earned(WRONG) == {"correct": 0.0} | form
    assert earned(WRONG.replace("17", "18.0")) == {"correct": 1.0} | form | {"integer": 0.0}
    assert earned("so \\boxed{18}") == {"correct": 1.0} | dict.fromkeys(form, 0.0) | {"integer": 0.05}
    assert earned(GOOD, PUBLISHED) == {"correct": 1.0} | dict.fromkeys(form, 0.5)


def test_no_wrong_reply_is_worth_more_than_a_right_one_unless_it_is_told_to():
    assert sum(earned(WRONG).values()) < sum(earned("\\boxed{18.0}").values())
    assert sum(earned(WRONG, PUBLISHED).values()) > sum(earned("<answer>18</answer>", PUBLISHED).values())


def test_a_part_without_weight_is_not_there():
    assert earned(GOOD, "integer=0 strict_format=0 soft_format=0 tags=0") == {"correct": 1.0}
    assert set(earned("so \\boxed{18}", "form=boxed")) == {"correct", "integer", "strict_format", "soft_format"}
    assert sum(earned("so \\boxed{18}", "form=boxed").values()) == pytest.approx(1.15)


@pytest.mark.parametrize("nothing", ["", " ", "no number", "<answer>\n\n</answer>", "\\boxed{}", "####"])
@pytest.mark.parametrize("form", ["reasoning", "boxed"])
def test_nothing_is_worth_nothing(nothing, form):
    task = load_task("gsm8k", f"form={form} tags=0")
    assert set(task.reward(nothing, ROW).values()) == {0.0} == set(task.metrics(nothing, ROW).values())
    assert task.read_answer(nothing) == ""


def test_a_row_without_golds_earns_nothing_for_its_answer():
    assert earned(GOOD, row=TaskRow("q?", ()))["correct"] == 0.0
    assert load_task("gsm8k").metrics(GOOD, TaskRow("q?", ())) == dict.fromkeys((*MODES, "exact"), 0.0) | {"format": 1}


def test_the_answer_is_the_outcome_whatever_it_weighs():
    task = load_task("gsm8k", "correct=4 tags=2")
    assert task.accuracy(task.reward(GOOD, ROW)) == 1.0 and task.accuracy(task.reward(WRONG, ROW)) == 0.0
    assert task.slow and not task.needs_document and task.headline == "medium"


@pytest.mark.parametrize(("mode", "right"), [("strict", 1), ("medium", 0), ("loose", 1), ("exact", 0)])
def test_the_mode_of_training_is_a_setting(mode, right):
    assert earned("<answer>18 eggs</answer>", f"mode={mode}")["correct"] == right


def test_metrics():
    assert load_task("gsm8k").metrics(GOOD.replace("\n18\n</a", "\n18 eggs\n</a"), ROW) == {
        "strict": 1.0, "medium": 0.0, "loose": 1.0, "exact": 0.0, "format": 1.0}
    assert load_task("gsm8k", "form=boxed").metrics("\\boxed{18}", ROW)["format"] == 1.0
    assert load_task("gsm8k").metrics("\\boxed{18}", ROW)["format"] == 0.0


def test_answers_that_were_read_already_are_measured_as_they_are():
    task = load_task("math").of_answers()  # EVAL_ANSWER=boxed
    for answer, gold in (("18", "18"), ("2\\sqrt{2}", "\\sqrt{8}")):
        assert [task.metrics(answer, TaskRow("q?", (gold,)))[mode] for mode in MODES] == [1.0] * 3


# --- solutions -------------------------------------------------------------------------------------------------------

# Golds as GSM8K writes them, with what trips readers: a number behind "answer", currency, percent, calculator marks.
SOLUTIONS = [
    ("48/2 = <<48/2=24>>24, and 48+24 = <<48+24=72>>72 in all.", "72"),
    ("12/60 = $<<12/60=0.2>>0.2, times 50 = $<<0.2*50=10>>10.", "10"),
    ("$36 * 30 = $<<36*30=1080>>1080.", "1,080"),
    ("They answered 5 * 5 - 1 = <<5*5-1=24>>24 times, 48 + 16 = <<48+16=64>>64.", "66"),
    ("$1,000,000-$150,000=$<<1000000-150000=850000>>850,000 a year.", "850,000"),
    ("Each answer takes 12/16 = <<12/16=.75>>.75, so 60 - 60 = <<60-60=0>>0", "0"),
    ("1,200,000 * 91 = <<1200000*91=109200000>>109,200,000 of them.", "109,200,000"),
    ("As the answer in percent: 50 / 200 * 100% = 25%", "25"),
    ("The final answer is 3 before 7 is taken away.", "-4"),
    ("7 / 2 = <<7/2=3.5>>3.5", "3.5"),
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
        assert [task.metrics(right, row)[mode] for mode in MODES] == [1.0] * 3, right
    assert task.metrics(reply, row)["format"] == 1.0 and task.accuracy(task.reward(reply, row)) == 1.0
    assert not reasoning or task.reasoning(reply) == reasoning


def test_a_solution_in_a_form_stays_as_it_is():
    row = TaskRow("q?", ("18",), {"solution": GOOD})
    assert load_task("gsm8k").solution(row) == GOOD == load_task("gsm8k", "form=boxed").solution(row)
    assert load_task("gsm8k").solution(TaskRow("q?", ())) == ""


def test_reasoning_is_the_body_of_its_block_or_what_stands_before_the_answer():
    task = load_task("gsm8k")
    assert task.reasoning(GOOD) == "16 - 3 - 4 = 9\n9 * 2 = 18"
    assert task.reasoning("9 * 2, so \\boxed{18}") == "9 * 2, so"


# --- settings --------------------------------------------------------------------------------------------------------


def test_settings_reach_the_rows_of_the_runs_task():
    config = Config(task="gsm8k", task_args="form=boxed")
    for metadata in ({}, {"task": "gsm8k"}):
        assert task_of(config, Sample(prompt="q?", metadata=metadata)).settings.form == "boxed"
    assert task_of(config, Sample(prompt="q?", metadata={"task": "math"})).settings.form == "reasoning"
