"""What a spreadsheet makes of the texts of a CSV: no formula, and no row but those that were written."""

import csv
import io

import pytest

from mem_agent.evaluation.results import read_results
from mem_agent.report.__main__ import make_report
from mem_agent.report.spreadsheet import csv_text
from mem_agent.tests.helpers.fake_results import plain_row, write_folder

FORMULAS = ["=cmd|'/c calc'!A1", "+1+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "-", "+1\n", "-1,5",
            "-inf", "-٣"]
PLAIN = ["", "Ann", "a=b", " =1", "'", "-5", "+1", "-1.5e-3", ".5", "1e9", -5, 2.5, None]


def cells(text):
    return [line[0] for line in csv.reader(io.StringIO(text, newline=""))]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_that_would_be_a_formula_is_a_text(text):
    assert cells(csv_text([text], [{text: text}])) == [f"'{text}"] * 2


def test_other_texts_and_numbers_are_as_they_are():
    rows = [{"a": value, "b": "x"} for value in PLAIN]
    assert cells(csv_text(["a", "b"], rows))[1:] == ["" if value is None else str(value) for value in PLAIN]


def test_a_line_end_in_a_text_begins_no_row():
    text = csv_text(["a", "b"], [{"a": "x\ry"}, {"b": "x\ny"}, {"a": 'x"\r\n'}])
    assert text.splitlines(keepends=True)[0] == "a,b\n" and text.endswith('"x""\r\n",\n')
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["a", "b"], ["x\ry", ""], ["", "x\ny"], ['x"\r\n', ""]]


def test_the_files_of_a_report_have_no_formula(tmp_path):
    row = plain_row("=1", input="=cmd|'/c calc'!A1", pred="-5", failure="@x", answers=["+a"], counts={"=c": 1})
    ended = plain_row("q", counts={"=c": 1})
    folder = write_folder(tmp_path / "=run", [row, ended])
    (run,) = read_results([folder])
    written = make_report([folder], tmp_path / "report").parent
    for name in ("questions.csv", "results.csv", "memory_by_turn.csv"):
        for line in csv.reader((written / name).open(newline="")):
            assert not any(cell.startswith(("=", "+", "@")) for cell in line), name
    (first, _) = csv.DictReader((written / "questions.csv").open(newline=""))
    assert (first["question_id"], first["prediction"], first["run"]) == ("'=1", "-5", f"'{run.label}")
