"""A table becomes training rows and held-out evaluation files: no question and no document is on both sides."""

import csv
import json

import pytest

from mem_agent.config import Config
from mem_agent.data.own_questions import split_questions
from mem_agent.data.questions import Question
from mem_agent.evaluation.questions import load_questions
from mem_agent.prepare_data import main


@pytest.fixture
def table(tmp_path):
    """40 rows; each two that follow each other share a document."""
    path = tmp_path / "questions.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "answer", "context"])
        for number in range(40):
            fact = number - number % 2
            side = "left" if number % 2 else "right"
            text = f"The left wall of room {fact} is red{fact}. Its right wall is red{fact} too."
            writer.writerow([f"Which colour is the {side} wall of room {fact}?", f"red{fact}", text])
    return path


def lines_of(folder):
    return [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]


def test_training_rows_and_evaluation_files_of_several_lengths(table, tmp_path):
    output = tmp_path / "mine"
    assert main(["--input", str(table), "--output", str(output), "--held-out", "10", "--lengths", "own 4"]) == 0
    rows = lines_of(output)
    own, four = (list(load_questions(output, length)) for length in ("own", "4"))
    assert len(rows) == 30 and len(own) == 10
    assert [entry.question.text for entry in own] == [entry.question.text for entry in four]
    assert not {row["prompt"] for row in rows} & {entry.question.text for entry in own}
    kept = "\n".join(row["metadata"]["context"] for row in rows)
    assert not any(entry.context in kept for entry in own)
    for short, long in zip(own, four, strict=True):
        assert short.context.partition("\n")[2] in long.context and long.context.count("Document ") == 4
        assert long.context.count(short.question.answers[0]) == 2  # no other document holds the answer
    assert {row["metadata"]["num_docs"] for row in rows} == {4}


def test_train_data_of_the_folder_evaluates_on_its_files(table, tmp_path):
    output = tmp_path / "mine"
    main(["--input", str(table), "--output", str(output), "--lengths", "2 own 3"])
    config = Config.from_env({"TRAIN_DATA": str(output)})
    assert (config.train_data, config.data_root) == (str(output / "train.jsonl"), str(output))
    assert config.length == "2 3 own"
    assert Config.from_env({"TRAIN_DATA": str(output), "DATA_ROOT": "other"}).data_root == "other"
    assert Config.from_env({"TRAIN_DATA": str(output), "DATA_ROOT": ""}).data_root == "", "no evaluation"


@pytest.mark.parametrize(("held_out", "sizes"), [(2, (2, 2)), (0.5, (2, 2)), (1, (3, 1)), (0, (4, 0))])
def test_questions_that_share_a_document_or_their_text_stay_together(held_out, sizes):
    rows = [("Who?", "Ann is."), ("When?", "Ann is."), ("Where?", "Bob is."), ("Why?", "Eve is.")]
    questions = [Question(asked, ("x",), text) for asked, text in rows]
    train, held = split_questions(questions, held_out, seed=42)
    assert (len(train), len(held)) == sizes and all(one in [*train, *held] for one in questions)
    assert not {one.context for one in train} & {one.context for one in held}


def test_one_line_where_nothing_can_be_held_out_and_none_for_training_alone(tmp_path, capsys):
    table = tmp_path / "one.jsonl"
    table.write_text("".join(json.dumps({"question": f"{n}?", "answer": "a", "context": "All."}) + "\n"
                             for n in range(8)))
    assert main(["--input", str(table), "--output", str(tmp_path / "mine")]) == 2
    assert "--held-out" in capsys.readouterr().err and not (tmp_path / "mine").exists()
    assert main(["--input", str(table), "--output", str(tmp_path / "mine"), "--held-out", "0"]) == 0
    assert len(lines_of(tmp_path / "mine")) == 8 and not list((tmp_path / "mine").glob("eval_*"))


def test_rows_without_a_document_to_hide_are_left_out_and_an_impossible_length_writes_nothing(tmp_path, capsys):
    table = tmp_path / "some.jsonl"
    rows = [{"question": f"{n}?", "answer": f"a{n}", "context": f"It is a{n}."} for n in range(9)]
    evidence = {"context": [["Ann", ["Ann is."]]], "supporting_facts": [["Bob", 0]]}
    table.write_text("\n".join(map(json.dumps, [*rows, {"question": "x?", "answer": "b"} | evidence])))
    command = ["--input", str(table), "--output", str(tmp_path / "mine"), "--held-out", "3", "--lengths"]
    assert main([*command, "own 4"]) == 2 and not (tmp_path / "mine").exists()
    assert "4 documents" in capsys.readouterr().err
    assert main([*command, "own 2"]) == 0
    assert "1 bad rows left out" in capsys.readouterr().out and len(lines_of(tmp_path / "mine")) == 6
