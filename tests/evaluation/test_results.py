"""Result folders: what is read back, what a killed run leaves, and damage."""

import json

import orjson
import pytest

from mem_agent.evaluation.questions import EvalError
from mem_agent.evaluation.results import lock_results, read_results, read_rows, read_run, write_row
from mem_agent.report.__main__ import main as report
from mem_agent.tests.helpers.fake_results import plain_row, write_folder


def test_what_is_written_is_what_was_read(tmp_path):
    line = plain_row("a", 0.5, 1, "timeout") | {"memories": [{"tokens": 7, "gold": None}, {"tokens": 9, "gold": True}],
                                                "headline": "own", "scores": {"own": 0.25}}
    (row,) = read_rows(write_folder(tmp_path / "r", [line]), "50")
    with lock_results(tmp_path / "again"):
        write_row(tmp_path / "again", row)
    assert json.loads((tmp_path / "again" / "50.jsonl").read_bytes()) == line
    assert (row.question, row.text, row.scores["em"], row.scores["own"]) == ("a", "Who?", 0.5, 0.25)


def test_the_newest_row_counts_and_half_a_line_is_none(tmp_path):
    folder = write_folder(tmp_path / "r", [plain_row("a", 0.0, failure="timeout"), plain_row("b"), plain_row("a")])
    path = folder / "50.jsonl"
    before = path.read_bytes()
    path.write_bytes(before + b'{"_id": "b", "em')
    assert [(row.question, row.scores["em"]) for row in read_rows(folder, "50")] == [("a", 1.0), ("b", 1.0)]
    assert path.read_bytes() != before, "reading changes nothing"
    with lock_results(folder):
        assert path.read_bytes() == before


def test_a_damaged_row_is_named(tmp_path):
    with pytest.raises(EvalError, match=r"50\.jsonl: line 2"):
        read_rows(write_folder(tmp_path / "r", [plain_row("a"), {"_id": "b"}]), "50")


def test_lengths_are_ordered_by_size_within_their_task(tmp_path):
    names = ("800", "50", "vt_16384", "vt_8192", "100")
    run = {"model": "m", "mode": "direct", "settings": {}, "samples": 1, "data": dict.fromkeys(names, "x"),
           "questions": dict.fromkeys(names, 4), "model_name": "/runs/mine/hf/iter_0000099"}
    (tmp_path / "run.json").write_bytes(orjson.dumps(run))
    assert read_run(tmp_path).lengths == ["50", "100", "800", "vt_8192", "vt_16384"]
    assert read_run(tmp_path).checkpoint == 99


def test_a_folder_twice_is_read_once_and_one_without_rows_refused(tmp_path):
    folder = write_folder(tmp_path / "r", [plain_row("a")])
    assert [run.label for run in read_results([folder, folder])] == ["r"]
    with pytest.raises(EvalError, match="no rows yet"):
        read_results([write_folder(tmp_path / "empty", [])])
    assert report([str(tmp_path)]) == 1
