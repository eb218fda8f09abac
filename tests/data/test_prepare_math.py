"""mem-agent prepare-math: shapes of rows, forms, shots, held-out rows, Countdown, and what is refused."""

import json
import re
from collections import Counter
from itertools import islice

import pytest

from mem_agent.data.prepare_math import SIZES, TARGETS, examples, main, problems
from mem_agent.data.training_file import DataSource
from mem_agent.evaluation.questions import load_questions
from mem_agent.hooks.reader import messages_before, question_of
from mem_agent.hooks.sample import Sample
from mem_agent.tasks.math import exact_value
from mem_agent.tests.helpers.question_rows import put

GSM8K = {"question": "How many?", "answer": "He has 48/2 = <<48/2=24>>24.\nSo $<<24*45=1080>>1,080.\n#### 1,080"}
MATH = {"problem": "What is $x$?", "solution": "As $2x=4$, we get \\boxed{2}.", "unique_id": "a/7.json"}
COUNTDOWN = {"nums": [6, 4, 1], "target": 24}
REASONED = "<reasoning>\nHe has 48/2 = 24.\nSo $1,080.\n</reasoning>\n<answer>\n1080\n</answer>"
SUMS = [{"question": f"What is {n} + {n}?", "answer": f"{n} + {n} = {2 * n}.\n#### {2 * n}"} for n in range(40)]


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    """The training rows made of some; options after them."""
    monkeypatch.chdir(tmp_path)

    def run(rows, *options, task="gsm8k", code=0):
        put(tmp_path / "in.jsonl", *rows)
        assert main(["--task", task, "--input", "in.jsonl", "--output", "train.jsonl", *options]) == code
        return list(map(json.loads, (tmp_path / "train.jsonl").read_text().splitlines())) if code == 0 else []

    return run


# --- rows -----------------------------------------------------------------------------------------------------------
def test_a_row_of_gsm8k(prepare, tmp_path):
    (row,) = prepare([GSM8K])
    system, question = row["prompt"]
    assert system["role"] == "system" and "then the final number and nothing else between" in system["content"]
    assert question == {"role": "user", "content": "How many?"} and row["label"] == "1080"
    metadata = row["metadata"]
    assert metadata.pop("id") and metadata == {"task": "gsm8k", "ground_truth": ["1080"], "solution": REASONED}
    for text, messages in (("Say it.\n", [{"role": "system", "content": "Say it."}, question]), ("\n", [question])):
        (tmp_path / "own.txt").write_text(text)
        assert prepare([GSM8K], "--system", "own.txt")[0]["prompt"] == messages


def test_a_row_of_any_math_data(prepare):
    steps, boxed = "As $2x=4$, we get \\boxed{2}.", "As $2x=4$, we get \\boxed{2}.\n\\boxed{4/2}"
    own = {"problem": None, "question": "What is $x$?"}
    for change, answer, solution in (({}, "2", steps), (own, "2", steps), ({"answer": "4/2"}, "4/2", boxed)):
        (row,) = prepare([MATH | change], "--form", "boxed", task="math")
        assert (row["label"], row["metadata"]["id"], row["metadata"]["solution"]) == (answer, "a/7.json", solution)


def test_every_countdown_problem_made_has_its_solution(tmp_path):
    made = list(islice(problems(1), 300))
    for problem in made:
        numbers, target = problem.extras["numbers"], problem.extras["target"]
        value, used = exact_value(problem.result)
        assert value == target and target in TARGETS and Counter(used) == Counter(numbers)
        sides = [step.split(" = ") for step in problem.steps.splitlines()]
        assert all(exact_value(left)[0] == int(right) >= 0 for left, right in sides) and len(sides) == len(numbers) - 1
    assert {len(problem.extras["numbers"]) for problem in made} == set(SIZES)
    assert len({problem.asked for problem in made}) == 300
    assert list(islice(problems(1), 5)) == made[:5] != list(islice(problems(2), 5))
    command = ["--task", "countdown", "--countdown", "30", "--eval", "cd", "--split-eval", "9", "--output"]
    assert main([*command, str(tmp_path / "a.jsonl")]) == 0
    rows = list(map(json.loads, (tmp_path / "a.jsonl").read_text().splitlines()))
    assert len(rows) == 21 and all("</answer>" in row["metadata"]["solution"] for row in rows)
    entry = next(load_questions(tmp_path, "cd")).question
    assert entry.own.keys() == {"numbers", "target"} and f"Reach {entry.own['target']}" in entry.text


# --- shots and held-out rows ----------------------------------------------------------------------------------------
def test_shots_are_the_packs_own_in_the_form_asked_for_and_depend_on_seed_and_question_alone(prepare, tmp_path):
    flags = ("--shots", "2", "--form", "boxed")
    rows = prepare(SUMS, *flags)
    shots = [[m["content"] for m in row["prompt"] if m["role"] == "user"][:-1] for row in rows]
    own = {question.question for question in examples("gsm8k")}
    assert all(len(set(each)) == 2 for each in shots) and {shot for each in shots for shot in each} == own
    assert all("\\boxed{" in m["content"] for m in rows[0]["prompt"] if m["role"] == "assistant")
    row = DataSource(tmp_path / "train.jsonl", 1).row(0)  # a conversation as hooks and hosts read it
    sample = Sample(row.prompt, row.label, row.metadata)
    assert [m.role for m in messages_before(sample)] == ["system", "user", "assistant", "user", "assistant"]
    assert re.fullmatch(r"What is (\d+) \+ \1\?", question_of(sample))
    assert rows[::-1] == prepare(SUMS[::-1], *flags) != prepare(SUMS[::-1], *flags, "--seed", "1")


def test_held_out_rows_are_evaluated_and_never_trained(prepare, tmp_path):
    rows = prepare([*SUMS, *SUMS], "--split-eval", "6", "--eval", "sums", "--shots", "2")
    entries = [entry.question for entry in load_questions(tmp_path, "sums")]
    held = {entry.text for entry in entries}
    assert len(entries) == 6 and len(rows) == 80 - 2 * len(held)  # their doubles are left out too
    assert held.isdisjoint(row["prompt"][-1]["content"] for row in rows)
    assert (entries[0].task, entries[0].id, entries[0].answers[0].isdigit()) == ("gsm8k", "0", True)
    same = [{"nums": nums, "target": 16} for nums in ([3, 5, 8], [8, 3, 5], [5, 8, 3])]
    for seed in range(4):  # one of them holds one of the three out
        flags = ("--split-eval", "1", "--eval", "held", "--seed", str(seed))
        targets = [row["metadata"]["target"] for row in prepare([*same, COUNTDOWN], *flags, task="countdown")]
        assert targets in ([24], [16] * 3)


# --- bad input ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("task,row,reason", [
    ("gsm8k", {"question": "?", "answer": "so #### a dozen"}, "answer"), ("gsm8k", {"answer": "#### 1"}, "question"),
    ("math", {"problem": "?", "solution": "none"}, "boxed"), ("countdown", {"nums": [1], "target": 1}, "nums"),
])
def test_a_bad_row_is_told_and_left_out(prepare, capsys, task, row, reason):
    prepare([row], task=task, code=1)
    assert re.search(f"line 1: .*{reason}", capsys.readouterr().err)
    assert len(prepare([MATH | GSM8K | COUNTDOWN, row], task=task)) == 1


@pytest.mark.parametrize("options,reason", [
    (["--eval", "sums"], "--split-eval"), (["--eval", "sums", "--split-eval", "40"], "--split-eval 40"),
    (["--system", "nowhere.txt"], "nowhere.txt"),
])
def test_what_cannot_be_written_is_one_line_and_changes_nothing(prepare, capsys, tmp_path, options, reason):
    (tmp_path / "train.jsonl").write_text("earlier")
    prepare(SUMS, *options, code=2)
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ") and reason in error
    assert (tmp_path / "train.jsonl").read_text() == "earlier" and not list(tmp_path.glob("*.tmp"))
