"""Result folders: what is read back, what a killed run leaves, and every kind of damage in one line."""

import json
import os

import orjson
import pytest

from mem_agent.evaluation.questions import EvalError
from mem_agent.evaluation.results import (
    RowWriter,
    answered,
    cut_half_line,
    date_of,
    labels_of,
    read_results,
    read_rows,
    read_run,
    rows_path,
)
from mem_agent.report.__main__ import main as report
from mem_agent.system.atomic_file import NotAFile
from mem_agent.tests.helpers.fake_results import plain_row, write_folder
from mem_agent.tests.helpers.small_files import files_of_at_most

TRACE = {"kind": "final", "prompt": [1], "response": [2], "stop": "stop", "cached_tokens": 0}


def test_what_is_written_is_what_was_read(tmp_path):
    line = plain_row("a", 0.5, 1, "timeout") | {"memories": [{"tokens": 7, "gold": None}, {"tokens": 9, "gold": True}]}
    folder = write_folder(tmp_path / "r", [line])
    (row,) = read_rows(folder, "50")
    (tmp_path / "again").mkdir()
    with RowWriter(tmp_path / "again") as writer:
        writer.write(row)
    assert json.loads((tmp_path / "again" / "50.jsonl").read_bytes()) == line
    assert (row.memory_tokens, row.memory_gold, row.scores["em"]) == ((7, 9), (None, True), 0.5)


def test_ruler_rows_have_a_score_of_their_own_and_what_else_a_line_holds_stays_on_disk(tmp_path):
    line = {k: v for k, v in plain_row("a").items() if k not in ("em", "f1", "sub_em", "sub_em_legacy")}
    (row,) = read_rows(write_folder(tmp_path / "r", [line | {"ruler": 1.0, "turns": [TRACE]}]), "50")
    assert row.scores == {"ruler": 1.0} and not hasattr(row, "turns")


def test_the_newest_row_counts_and_half_a_line_is_none(tmp_path):
    folder = write_folder(tmp_path / "r", [plain_row("a", 0.0, failure="timeout"), plain_row("b"), plain_row("a")])
    path = folder / "50.jsonl"
    path.write_bytes(path.read_bytes() + b'{"_id": "b", "em')
    before = path.read_bytes()
    assert [(row.question, row.scores["em"]) for row in read_rows(folder, "50")] == [("a", 1.0), ("b", 1.0)]
    assert path.read_bytes() == before, "reading changes nothing"


def test_failed_rows_are_asked_again(tmp_path):
    rows = [plain_row("a"), plain_row("a", sample=1, failure="timeout"), plain_row("b", failure="timeout")]
    assert answered(read_rows(write_folder(tmp_path / "r", rows), "50")) == {("a", 0)}


@pytest.mark.parametrize("content", [b"", b"half", b"one\n", b"one\nhalf", b"one\n" + b"x" * 5000])
def test_what_stands_behind_the_last_line_end_is_cut_off(tmp_path, content):
    path = tmp_path / "f"
    path.write_bytes(content)
    cut_half_line(path, block=7)
    assert path.read_bytes() == content[: content.rfind(b"\n") + 1]


def test_a_full_disk_leaves_no_half_line_that_another_row_could_follow(tmp_path):
    folder = write_folder(tmp_path / "r", [plain_row("a")])
    (row,) = read_rows(folder, "50")
    size = rows_path(folder, "50").stat().st_size
    with RowWriter(folder) as writer:
        with pytest.raises(EvalError, match="the disk is full; make room"), files_of_at_most(size + 20):
            writer.write(row)
        assert rows_path(folder, "50").stat().st_size == size
        writer.write(row)
    assert len(rows_path(folder, "50").read_bytes().splitlines()) == 2 and len(read_rows(folder, "50")) == 1


@pytest.mark.parametrize("link,said", [
    (lambda path: path.symlink_to("../.netrc"), "is a link out of the folder"),
    (lambda path: path.hardlink_to(path.parent.parent / ".netrc"), r"has other names \(hard links\)"),
])
def test_no_row_is_written_and_nothing_cut_through_a_link_out_of_the_folder(tmp_path, link, said):
    """A folder of somebody else's results, which the user continues."""
    folder = write_folder(tmp_path / "r", [plain_row("a")])
    (row,) = read_rows(folder, "50")
    (tmp_path / ".netrc").write_bytes(b"machine hub\npassword secret")
    rows_path(folder, "50").unlink()
    link(rows_path(folder, "50"))
    with RowWriter(folder) as writer, pytest.raises(NotAFile, match=rf"r/50\.jsonl: {said}"):
        writer.write(row)
    assert (tmp_path / ".netrc").read_bytes() == b"machine hub\npassword secret"


# --- damage -------------------------------------------------------------------------------------------------------


def line_with(**change):
    return json.dumps(plain_row("b") | change).encode()


BAD_LINES = [
    (b'{"_id":"zz"}', "no `counts`"),
    (b'{"_id": "b", "em', "not JSON"),
    (b"[]", "no JSON object"),
    (b"null", "no JSON object"),
    (b"", "not JSON"),
    (b"\xff\xfe", "not JSON"),
    (b"[" * 5000, "not JSON"),
    (line_with(sub_em=float("nan")), "not JSON"),
    (line_with(seconds=float("inf")), "not JSON"),
    (line_with(_id=["zz"]), "`_id` is not str"),
    (line_with(_id=7), "`_id` is not str"),
    (line_with(sample="0"), "`sample` is not int"),
    (line_with(sample=-1), "`sample` is not between 0 and 1,000,000,000"),
    (line_with(sample=2**64 - 1), "`sample` is not between 0 and 1,000,000,000"),
    (line_with(sub_em=True), "`sub_em` is not float"),
    (line_with(sub_em=None), "`sub_em` is not float"),
    (line_with(sub_em=1e308), "`sub_em` is beyond 1e+100"),
    (line_with(scores={"mine": -1e308}), "`mine` is beyond 1e+100"),
    (line_with(answers=[["x"]]), "`answers` are not str"),
    (line_with(failure={}), "`failure` is not str"),
    (line_with(counts=None), "`counts` is not dict"),
    (line_with(counts={"turns": "3"}), "`turns` is not float"),
    (line_with(memories=[3]), "no `tokens`"),
    (line_with(memories=[{"tokens": 3}]), "no `gold`"),
    (line_with(memories=[{"tokens": 3, "gold": 1}]), "`gold` is not bool"),
]


@pytest.mark.parametrize("line,reason", BAD_LINES)
def test_a_line_that_is_no_row_is_named(tmp_path, line, reason):
    folder = write_folder(tmp_path / "r", [plain_row("a")])
    path = rows_path(folder, "50")
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(EvalError) as error:
        read_rows(folder, "50")
    assert str(error.value).startswith(f"{path}: line 2 is no row of an evaluation ({reason}")
    assert str(error.value).endswith("; remove that line and run again") and "\n" not in str(error.value)


BAD_RUNS = [
    (b"{", "not JSON"),
    (b"[]", "no JSON object"),
    ({"data": None}, "`data` is not dict"),
    ({"samples": "2"}, "`samples` is not int"),
    ({"samples": 2**64 - 1}, "`samples` is not between 0 and 1,000,000,000"),
    ({"questions": {"50": -1}}, "`50` is not between 0 and 1,000,000,000"),
    ({"data": {"9" * 241: "a"}}, f"`data` names '{'9' * 80}', which can be no file"),
    ({"data": {"\0_50": "a"}}, "`data` names '\\x00_50', which can be no file"),
    ({"data": {"50": 1}}, "`50` is not str"),
    ({"questions": {}}, "no `50`"),
    ({"settings": []}, "`settings` is not dict"),
    ({"data": {"../other/50": "a"}}, "`data` names '../other/50', outside of the folder"),
    ({"data": {"/tmp/50": "a"}}, "`data` names '/tmp/50', outside of the folder"),
    ({"model_name": "a\0b"}, "`model_name` is 'a\\x00b', which can be no folder"),
    ({"model_name": "/" + "a/" * 2048}, f"`model_name` is '/{'a/' * 39}a', which can be no folder"),
]


@pytest.mark.parametrize("change,reason", BAD_RUNS)
def test_a_damaged_run_is_one_line(tmp_path, change, reason):
    folder = write_folder(tmp_path / "r", [plain_row("a")])
    path = folder / "run.json"
    path.write_bytes(change if isinstance(change, bytes) else orjson.dumps(orjson.loads(path.read_bytes()) | change))
    with pytest.raises(EvalError) as error:
        read_run(folder)
    assert str(error.value).startswith(f"{path}: damaged ({reason}") and "\n" not in str(error.value)


# --- folders ------------------------------------------------------------------------------------------------------


def test_lengths_are_ordered_by_size_within_their_task(tmp_path):
    names = ("800", "50", "vt_16384", "vt_8192", "100")
    run = {"model": "m", "mode": "direct", "settings": {}, "samples": 1, "data": dict.fromkeys(names, "x"),
           "questions": dict.fromkeys(names, 4)}
    (tmp_path / "run.json").write_bytes(orjson.dumps(run))
    assert read_run(tmp_path).lengths == ["50", "100", "800", "vt_8192", "vt_16384"]


def test_same_folder_names_are_told_apart(tmp_path):
    assert labels_of([tmp_path / "x" / "a", tmp_path / "y" / "a", tmp_path / "b"]) == ["x/a", "y/a", "b"]


def test_names_that_are_no_utf_8_are_told_apart_as_texts(tmp_path):
    names = [os.fsdecode(name) for name in (b"x/\xff", b"x/\xfe", b"y/\xff")]
    assert labels_of([tmp_path / name for name in names]) == ["x/\\xff", "\\xfe", "y/\\xff"]


@pytest.mark.parametrize(("time", "year"), [(-1e15, 1970), (0, 1970), (1e9, 2001), (1e15, 9999)])
def test_a_time_that_no_calendar_has_is_one_of_its_ends(time, year):
    assert date_of(time).year == year


def test_a_folder_twice_or_without_rows_is_refused(tmp_path):
    folder = write_folder(tmp_path / "r", [plain_row("a")])
    with pytest.raises(EvalError, match="given 2 times"):
        read_results([folder, folder])
    with pytest.raises(EvalError, match="no rows yet; run the evaluation first"):
        read_results([write_folder(tmp_path / "empty", [])])
    assert report([str(tmp_path)]) == 1
