"""mem-agent prepare-math: shapes of rows, forms, shots, held-out rows, Countdown, and what is refused."""

import ast
import json
import operator
import re
from collections import Counter
from itertools import islice

import pytest

from mem_agent.data.prepare_math import SIZES, TARGETS, examples, main, problems, solve
from mem_agent.data.training_file import DataSource
from mem_agent.evaluation.questions import load_questions
from mem_agent.hooks.reader import messages_before, question_of
from mem_agent.hooks.sample import Sample

GSM8K = {"question": "How many?", "answer": "He has 48/2 = <<48/2=24>>24.\nSo $<<24*45=1080>>1,080.\n#### 1,080"}
MATH = {"problem": "What is $x$?", "solution": "As $2x=4$, we get \\boxed{2}.", "unique_id": "a/7.json"}
COUNTDOWN = {"nums": [6, 4, 1], "target": 24}
STEPS = "He has 48/2 = 24.\nSo $1,080."
REASONED = f"<reasoning>\n{STEPS}\n</reasoning>\n<answer>\n1080\n</answer>"


def put(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    """The rows written from some; options after them."""
    monkeypatch.chdir(tmp_path)

    def run(rows, *options, task="gsm8k", output="train.jsonl", code=0):
        source = put(tmp_path / "in.jsonl", *rows)
        written = ["--output", output] if output else []
        assert main(["--task", task, "--input", str(source), *written, *options]) == code
        return rows_of(tmp_path / output) if output and code == 0 else []

    return run


def many(count):
    return [{"question": f"What is {n} + {n}?", "answer": f"{n} + {n} = {2 * n}.\n#### {2 * n}"} for n in range(count)]


# --- rows -----------------------------------------------------------------------------------------------------------


def test_a_row_of_gsm8k(prepare):
    (row,) = prepare([GSM8K])
    system, question = row["prompt"]
    assert system["role"] == "system" and "then the final number and nothing else between" in system["content"]
    assert question == {"role": "user", "content": "How many?"} and row["label"] == "1080"
    metadata = row["metadata"]
    assert metadata.pop("id") and metadata == {"task": "gsm8k", "ground_truth": ["1080"], "solution": REASONED}


@pytest.mark.parametrize("change,answer", [
    ({}, "2"), ({"id": None}, "2"), ({"answer": 2}, "2"), ({"answer": "\\frac{4}{2}"}, "\\frac{4}{2}"),
    ({"problem": None, "question": "What is $x$?"}, "2"),
])
def test_a_row_of_any_math_data(prepare, change, answer):
    (row,) = prepare([MATH | change], "--form", "boxed", task="math")
    assert (row["label"], row["metadata"]["id"]) == (answer, "a/7.json")
    steps = "As $2x=4$, we get \\boxed{2}."
    assert row["metadata"]["solution"] == (steps if answer == "2" else f"{steps}\n\\boxed{{{answer}}}")


@pytest.mark.parametrize("row", [
    COUNTDOWN, {"numbers": [6, 4, 1], "target": 24}, {"nums": "[6, 4, 1]", "target": "24"},
])
def test_a_row_of_countdown(prepare, row):
    (written,) = prepare([row], task="countdown")
    metadata = written["metadata"]
    assert (metadata["numbers"], metadata["target"], written["label"]) == ([6, 4, 1], 24, "24")
    assert "6, 4 and 1" in written["prompt"][-1]["content"] and "Reach 24" in written["prompt"][-1]["content"]
    steps, answer = "6 * 4 = 24\n24 * 1 = 24", "(6 * 4) * 1"
    assert metadata["solution"] == f"<reasoning>\n{steps}\n</reasoning>\n<answer>\n{answer}\n</answer>"


def test_countdown_can_be_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["--task", "countdown", "--countdown", "30", "--output"]
    assert [main([*command, *end]) for end in (["a.jsonl"], ["b.jsonl"], ["c.jsonl", "--seed", "7"])] == [0, 0, 0]
    first, again, other = ((tmp_path / f"{name}.jsonl").read_bytes() for name in "abc")
    assert first == again != other and len(first.splitlines()) == 30
    assert all("solution" in json.loads(line)["metadata"] for line in first.splitlines())


# --- Countdown ------------------------------------------------------------------------------------------------------
SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv}


def value(node):
    """Of an expression of whole numbers and four signs; nothing else is looked at."""
    if isinstance(node, ast.Constant):
        return node.value
    left, right = value(node.left), value(node.right)
    assert not isinstance(node.op, ast.Div) or left % right == 0
    return SIGNS[type(node.op)](left, right)


def check(solution, numbers, target):
    assert value(ast.parse(solution.expression, mode="eval").body) == solution.value == target
    assert Counter(map(int, re.findall(r"\d+", solution.expression))) == Counter(numbers)
    assert len(solution.steps) == len(numbers) - 1
    for step in solution.steps:
        left, _, right = step.partition(" = ")
        assert value(ast.parse(left, mode="eval").body) == int(right) >= 0
    assert solution.steps[-1].endswith(f" = {target}")


def test_every_problem_made_has_its_solution():
    made = list(islice(problems(1), 300))
    for numbers, solution in made:
        assert solution.value in TARGETS
        check(solution, numbers, solution.value)
    assert {len(numbers) for numbers, _ in made} == set(SIZES)
    assert len({(tuple(sorted(numbers)), solution.value) for numbers, solution in made}) == 300
    assert list(islice(problems(1), 5)) == made[:5] != list(islice(problems(2), 5))


@pytest.mark.parametrize("numbers,target,found", [
    ([6, 4, 1], 24, True), ([3, 3, 8, 8], 22, True), ([2, 2], 4, True), ([100, 4, 5], 20, True), ([7, 7, 1], 0, True),
    ([1, 1], 24, False), ([97, 89, 83, 79], 1, False), ([3, 3, 8, 8], 24, False),  # 8 / (3 - 8 / 3) needs a fraction
    ([1, 2, 3, 4, 5], 15, False),  # too many to search
])
def test_a_solution_is_found_or_none_is_made_up(numbers, target, found):
    solution = solve(numbers, target)
    assert (solution is not None) is found
    if solution:
        check(solution, numbers, target)


# --- wording --------------------------------------------------------------------------------------------------------


def test_a_system_message_of_the_users(prepare, tmp_path):
    (tmp_path / "own.txt").write_text("Say it.\n")
    (tmp_path / "none.txt").write_text("\n")
    assert prepare([GSM8K], "--system", "own.txt")[0]["prompt"][0] == {"role": "system", "content": "Say it."}
    assert [m["role"] for m in prepare([GSM8K], "--system", "none.txt")[0]["prompt"]] == ["user"]


def test_rows_are_conversations_as_hooks_and_hosts_read_them(prepare, tmp_path):
    prepare(many(3), "--shots", "2")
    source = DataSource(tmp_path / "train.jsonl", 1)
    row = source.row(0)
    sample = Sample(row.prompt, row.label, row.metadata)
    assert question_of(sample).startswith("What is ") and source.own_tasks == {"gsm8k": 1}
    assert [m.role for m in messages_before(sample)] == ["system", "user", "assistant", "user", "assistant"]


# --- shots ----------------------------------------------------------------------------------------------------------


def shots_of(row):
    return [m["content"] for m in row["prompt"] if m["role"] == "user"][:-1]


def test_shots_are_the_packs_own_in_the_form_asked_for(prepare):
    own = {question.question for question in examples("gsm8k")}
    rows = prepare(many(40), "--shots", "2", "--form", "boxed")
    assert all(len(set(shots_of(row))) == 2 and set(shots_of(row)) <= own for row in rows)
    assert {shot for row in rows for shot in shots_of(row)} == own  # a new choice for every row
    assert all("\\boxed{" in m["content"] for m in rows[0]["prompt"] if m["role"] == "assistant")


@pytest.mark.parametrize("task", ["gsm8k", "math", "countdown"])
def test_every_exemplar_is_right(task):
    """Of the sums every line with an equation is checked, and the last line names the answer."""
    assert len(examples(task)) == 8
    for question in examples(task):
        sums = [part for line in question.steps.splitlines() for part in _equations(line)]
        assert sums and all(value(ast.parse(left, mode="eval").body) == int(right) for left, right in sums), question
        assert question.answer in question.steps.splitlines()[-1]


def _equations(line):
    """Pairs of sides; what stands around them is words."""
    return re.findall(r"([\d(][\d +\-*/().]*?) = (\d+)", line)


def test_a_rows_shots_depend_on_nothing_but_seed_and_question(prepare):
    rows = many(30)
    forward, backward = prepare(rows, "--shots", "3"), prepare(rows[::-1], "--shots", "3")
    assert sorted(map(json.dumps, forward)) == sorted(map(json.dumps, backward))
    assert forward != prepare(rows, "--shots", "3", "--seed", "1")


# --- held out -------------------------------------------------------------------------------------------------------


def test_held_out_rows_are_evaluated_and_never_trained(prepare, tmp_path):
    rows = prepare([*many(20), *many(20)], "--split-eval", "6", "--eval", "sums", "--shots", "2")
    entries = [entry.question for entry in load_questions(tmp_path, "sums")]
    held = {entry.text for entry in entries}
    assert len(entries) == 6 and len(rows) == 40 - 2 * len(held)  # their doubles are left out too
    assert held.isdisjoint(row["prompt"][-1]["content"] for row in rows)
    assert (entries[0].task, entries[0].id, entries[0].answers[0].isdigit()) == ("gsm8k", "0", True)


def test_countdown_rows_of_the_same_numbers_are_the_same(prepare, tmp_path):
    rows = [{"nums": nums, "target": 16} for nums in ([3, 5, 8], [8, 3, 5], [5, 8, 3])] + [COUNTDOWN]
    for seed in range(8):  # one of them holds one of the three out
        trained = prepare(rows, "--split-eval", "1", "--eval", "held", "--seed", str(seed), task="countdown")
        (held,) = load_questions(tmp_path, "held")
        targets = [row["metadata"]["target"] for row in trained]
        assert targets == ([24] if held.question.own["target"] == 16 else [16] * 3)


def test_an_evaluation_file_alone(prepare, tmp_path):
    prepare([COUNTDOWN], "--eval", "data/cd", task="countdown", output="")
    (entry,) = load_questions(tmp_path / "data", "cd")
    assert entry.question.metadata == {"numbers": [6, 4, 1], "target": 24, "task": "countdown", "ground_truth": ["24"]}
    assert entry.question.messages[0].role == "system" and entry.context == ""


# --- bad input ------------------------------------------------------------------------------------------------------

BAD = [
    ("gsm8k", {"question": "?", "answer": "so #### a dozen"}, "answer"),
    ("gsm8k", {"question": " ", "answer": "#### 1"}, "question"),
    ("gsm8k", {"answer": "#### 1"}, "question"),
    ("math", {"problem": "?", "solution": "no box"}, "boxed"),
    ("countdown", {"nums": [1], "target": 1}, "nums"),
    ("countdown", {"nums": "one two", "target": 1}, "nums"),
    ("countdown", {"nums": [5, -1], "target": 4}, "nums"),
]
GOOD = {"gsm8k": GSM8K, "math": MATH, "countdown": COUNTDOWN}


@pytest.mark.parametrize("task,row,reason", BAD)
def test_a_bad_row_is_told_and_left_out(prepare, capsys, task, row, reason):
    assert len(prepare([GOOD[task], row], task=task)) == 1
    out, err = capsys.readouterr()
    assert "line 2" in err and reason in err and "1 bad rows" in out
    prepare([row], task=task, code=1)


REFUSED = [
    (["--eval", "sums"], "--split-eval"),
    (["--split-eval", "2"], "--split-eval"),
    (["--eval", "sums", "--split-eval", "30"], "--split-eval 30"),
    (["--shots", "8"], "--shots 8"),
    (["--system", "nowhere.txt"], "nowhere.txt"),
]


@pytest.mark.parametrize("options,reason", REFUSED)
def test_what_cannot_be_written_is_one_line_and_changes_nothing(prepare, capsys, tmp_path, options, reason):
    (tmp_path / "train.jsonl").write_text("earlier")
    prepare(many(30), *options, code=2)
    error = capsys.readouterr().err
    assert error.startswith("error: ") and reason in error and error.count("\n") == 1
    assert (tmp_path / "train.jsonl").read_text() == "earlier" and not list(tmp_path.glob("*.tmp"))
