"""Result folders: what is read back, what a killed run leaves, and damage."""

import json

import orjson
import pytest

from mem_agent.evaluation.questions import EvalError
from mem_agent.evaluation.results import RowWriter, answered, read_results, read_rows, read_run
from mem_agent.report.__main__ import main as report
from mem_agent.tests.helpers.fake_results import plain_row, write_folder


def test_what_is_written_is_what_was_read(tmp_path):
    line = plain_row("a", 0.5, 1, "timeout") | {"memories": [{"tokens": 7, "gold": None}, {"tokens": 9, "gold": True}]}
    folder = write_folder(tmp_path / "r", [line])
    (row,) = read_rows(folder, "50")
    (tmp_path / "again").mkdir()
    with RowWriter(tmp_path / "again") as writer:
        writer.write(row)
    assert json.loads((tmp_path / "again" / "50.jsonl").read_bytes()) == line
    assert (row.memory_tokens, row.memory_gold, row.scores["em"]) == ((7, 9), (None, True), 0.5)


def test_the_newest_row_counts_and_half_a_line_is_none(tmp_path):
    folder = write_folder(tmp_path / "r", [plain_row("a", 0.0, failure="timeout"), plain_row("b"), plain_row("a")])
    path = folder / "50.jsonl"
    path.write_bytes(path.read_bytes() + b'{"_id": "b", "em')
    before = path.read_bytes()
    assert [(row.question, row.scores["em"]) for row in read_rows(folder, "50")] == [("a", 1.0), ("b", 1.0)]
    assert path.read_bytes() == before, "reading changes nothing"


def test_failed_rows_are_asked_again_and_damaged_ones_named(tmp_path):
    rows = [plain_row("a"), plain_row("a", sample=1, failure="timeout"), plain_row("b", failure="timeout")]
    folder = write_folder(tmp_path / "r", rows)
    assert answered(read_rows(folder, "50")) == {("a", 0)}
    with (folder / "50.jsonl").open("ab") as file:
        file.write(b'{"_id": "b"}\n')
    with pytest.raises(EvalError, match=r"50\.jsonl: line 4"):
        read_rows(folder, "50")


def test_lengths_are_ordered_by_size_within_their_task(tmp_path):
    names = ("800", "50", "vt_16384", "vt_8192", "100")
    run = {"model": "m", "mode": "direct", "settings": {}, "samples": 1, "data": dict.fromkeys(names, "x"),
           "questions": dict.fromkeys(names, 4), "model_name": "/runs/mine/hf/iter_0000099"}
    (tmp_path / "run.json").write_bytes(orjson.dumps(run))
    assert read_run(tmp_path).lengths == ["50", "100", "800", "vt_8192", "vt_16384"]
    assert read_run(tmp_path).checkpoint == 99


def test_a_folder_twice_or_without_rows_is_refused(tmp_path):
    folder = write_folder(tmp_path / "r", [plain_row("a")])
    with pytest.raises(EvalError, match="given 2 times"):
        read_results([folder, folder])
    with pytest.raises(EvalError, match="no rows yet"):
        read_results([write_folder(tmp_path / "empty", [])])
    assert report([str(tmp_path)]) == 1
