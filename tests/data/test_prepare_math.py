"""mem-agent prepare-math: shapes of rows, forms, shots, held-out rows, Countdown, and what is refused."""

import ast
import json
import operator
import re
from collections import Counter
from itertools import islice

import pytest

from mem_agent.data.prepare_math import SIZES, TARGETS, examples, main, problems
from mem_agent.data.training_file import DataSource
from mem_agent.evaluation.questions import load_questions
from mem_agent.hooks.reader import messages_before, question_of
from mem_agent.hooks.sample import Sample

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
        (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert main(["--task", task, "--input", "in.jsonl", "--output", "train.jsonl", *options]) == code
        return list(map(json.loads, (tmp_path / "train.jsonl").read_text().splitlines())) if code == 0 else []

    return run


# --- rows -----------------------------------------------------------------------------------------------------------
def test_a_row_of_gsm8k(prepare):
    (row,) = prepare([GSM8K])
    system, question = row["prompt"]
    assert system["role"] == "system" and "then the final number and nothing else between" in system["content"]
    assert question == {"role": "user", "content": "How many?"} and row["label"] == "1080"
    metadata = row["metadata"]
    assert metadata.pop("id") and metadata == {"task": "gsm8k", "ground_truth": ["1080"], "solution": REASONED}


@pytest.mark.parametrize("change,answer", [
    ({}, "2"), ({"answer": 2}, "2"), ({"answer": "\\frac{4}{2}"}, "\\frac{4}{2}"),
    ({"problem": None, "question": "What is $x$?"}, "2"),
])
def test_a_row_of_any_math_data(prepare, change, answer):
    (row,) = prepare([MATH | change], "--form", "boxed", task="math")
    assert (row["label"], row["metadata"]["id"]) == (answer, "a/7.json")
    steps = "As $2x=4$, we get \\boxed{2}."
    assert row["metadata"]["solution"] == (steps if answer == "2" else f"{steps}\n\\boxed{{{answer}}}")


def test_rows_of_countdown(prepare):
    for row in prepare([COUNTDOWN, {"numbers": [6, 4, 1], "target": 24}], task="countdown"):
        metadata = row["metadata"]
        assert (metadata["numbers"], metadata["target"], row["label"]) == ([6, 4, 1], 24, "24")
        assert "6, 4 and 1" in row["prompt"][-1]["content"] and "Reach 24" in row["prompt"][-1]["content"]


# --- Countdown ------------------------------------------------------------------------------------------------------
SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv}


def value(node):
    """Of an expression of whole numbers and four signs; nothing else is looked at."""
    if isinstance(node, str):
        return value(ast.parse(node, mode="eval").body)
    if isinstance(node, ast.Constant):
        return node.value
    left, right = value(node.left), value(node.right)
    assert not isinstance(node.op, ast.Div) or left % right == 0
    return SIGNS[type(node.op)](left, right)


def test_every_problem_made_has_its_solution():
    made = list(islice(problems(1), 300))
    for numbers, solution in made:
        assert value(solution.text) == solution.value and solution.value in TARGETS
        assert Counter(map(int, re.findall(r"\d+", solution.text))) == Counter(numbers)
        sides = [step.split(" = ") for step in solution.steps]
        assert all(value(left) == int(right) >= 0 for left, right in sides) and len(sides) == len(numbers) - 1
    assert {len(numbers) for numbers, _ in made} == set(SIZES)
    assert len({(tuple(sorted(numbers)), solution.value) for numbers, solution in made}) == 300
    assert list(islice(problems(1), 5)) == made[:5] != list(islice(problems(2), 5))


def test_countdown_can_be_made(tmp_path):
    command = ["--task", "countdown", "--countdown", "30", "--eval", "cd", "--split-eval", "9", "--output"]
    assert main([*command, str(tmp_path / "a.jsonl")]) == 0
    rows = list(map(json.loads, (tmp_path / "a.jsonl").read_text().splitlines()))
    assert len(rows) == 21 and all("</answer>" in row["metadata"]["solution"] for row in rows)
    entry = next(load_questions(tmp_path, "cd"))
    assert {"numbers", "target"} < entry.question.metadata.keys() and entry.context == ""


# --- wording and shots ----------------------------------------------------------------------------------------------
def test_a_system_message_of_the_users(prepare, tmp_path):
    (tmp_path / "own.txt").write_text("Say it.\n")
    (tmp_path / "none.txt").write_text("\n")
    assert prepare([GSM8K], "--system", "own.txt")[0]["prompt"][0] == {"role": "system", "content": "Say it."}
    assert [m["role"] for m in prepare([GSM8K], "--system", "none.txt")[0]["prompt"]] == ["user"]


def test_rows_are_conversations_as_hooks_and_hosts_read_them(prepare, tmp_path):
    prepare(SUMS, "--shots", "2")
    source = DataSource(tmp_path / "train.jsonl", 1)
    row = source.row(0)
    sample = Sample(row.prompt, row.label, row.metadata)
    assert question_of(sample).startswith("What is ") and source.own_tasks == {"gsm8k": 1}
    assert [m.role for m in messages_before(sample)] == ["system", "user", "assistant", "user", "assistant"]


def test_shots_are_the_packs_own_in_the_form_asked_for_and_depend_on_seed_and_question_alone(prepare):
    rows = prepare(SUMS, "--shots", "2", "--form", "boxed")
    shots = [[m["content"] for m in row["prompt"] if m["role"] == "user"][:-1] for row in rows]
    own = {question.question for question in examples("gsm8k")}
    assert all(len(set(each)) == 2 for each in shots) and {shot for each in shots for shot in each} == own
    assert all("\\boxed{" in m["content"] for m in rows[0]["prompt"] if m["role"] == "assistant")
    assert rows[::-1] == prepare(SUMS[::-1], "--shots", "2", "--form", "boxed")
    assert rows != prepare(SUMS, "--shots", "2", "--form", "boxed", "--seed", "1")


def test_every_exemplar_is_right():
    """Of the sums every line with an equation is checked, and the last line names the answer."""
    for question in examples("gsm8k"):
        sums = re.findall(r"([\d(][\d +\-*/().]*?) = (\d+)", question.steps)
        assert sums and all(value(left) == int(right) for left, right in sums), question
        assert question.answer in question.steps.splitlines()[-1]


# --- held out -------------------------------------------------------------------------------------------------------
def test_held_out_rows_are_evaluated_and_never_trained(prepare, tmp_path):
    rows = prepare([*SUMS, *SUMS], "--split-eval", "6", "--eval", "sums", "--shots", "2")
    entries = [entry.question for entry in load_questions(tmp_path, "sums")]
    held = {entry.text for entry in entries}
    assert len(entries) == 6 and len(rows) == 80 - 2 * len(held)  # their doubles are left out too
    assert held.isdisjoint(row["prompt"][-1]["content"] for row in rows)
    assert (entries[0].task, entries[0].id, entries[0].answers[0].isdigit()) == ("gsm8k", "0", True)


def test_countdown_rows_of_the_same_numbers_are_the_same(prepare, tmp_path):
    rows = [{"nums": nums, "target": 16} for nums in ([3, 5, 8], [8, 3, 5], [5, 8, 3])] + [COUNTDOWN]
    for seed in range(4):  # one of them holds one of the three out
        trained = prepare(rows, "--split-eval", "1", "--eval", "held", "--seed", str(seed), task="countdown")
        (held,) = load_questions(tmp_path, "held")
        targets = [row["metadata"]["target"] for row in trained]
        assert targets == ([24] if held.question.own["target"] == 16 else [16] * 3)


# --- bad input ------------------------------------------------------------------------------------------------------
GOOD = {"gsm8k": GSM8K, "math": MATH, "countdown": COUNTDOWN}


@pytest.mark.parametrize("task,row,reason", [
    ("gsm8k", {"question": "?", "answer": "so #### a dozen"}, "answer"), ("gsm8k", {"answer": "#### 1"}, "question"),
    ("math", {"problem": "?", "solution": "no box"}, "boxed"), ("countdown", {"nums": [1], "target": 1}, "nums"),
])
def test_a_bad_row_is_told_and_left_out(prepare, capsys, task, row, reason):
    assert len(prepare([GOOD[task], row], task=task)) == 1
    out, err = capsys.readouterr()
    assert "line 2" in err and reason in err and "1 bad rows" in out
    prepare([row], task=task, code=1)


@pytest.mark.parametrize("options,reason", [
    (["--eval", "sums"], "--split-eval"), (["--split-eval", "2"], "--split-eval"),
    (["--eval", "sums", "--split-eval", "40"], "--split-eval 40"), (["--system", "nowhere.txt"], "nowhere.txt"),
])
def test_what_cannot_be_written_is_one_line_and_changes_nothing(prepare, capsys, tmp_path, options, reason):
    (tmp_path / "train.jsonl").write_text("earlier")
    prepare(SUMS, *options, code=2)
    error = capsys.readouterr().err
    assert error.startswith("error: ") and reason in error and error.count("\n") == 1
    assert (tmp_path / "train.jsonl").read_text() == "earlier" and not list(tmp_path.glob("*.tmp"))
