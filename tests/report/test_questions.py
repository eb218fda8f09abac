"""The table of questions: what stands in a row, what a page can hold, and what it links."""

import csv
import io
import json
import re
import sys
from importlib import resources
from types import SimpleNamespace

import pytest

from mem_agent.evaluation.results import read_results
from mem_agent.report import questions
from mem_agent.report.__main__ import main
from mem_agent.report.questions import question_rows, questions_csv, questions_json
from mem_agent.report.viewer.page import MOST_BYTES, write_viewer
from mem_agent.report.viewer_pages import linked_pages
from mem_agent.system.printable import printable
from mem_agent.tests.helpers.fake_results import plain_row, write_folder, write_run
from mem_agent.tests.helpers.fake_run import write_training_run
from mem_agent.tests.helpers.traces import write, write_small_results
from mem_agent.traces.trace import Trace, TraceTurn


def test_a_row_has_the_answers_of_every_run_of_the_same_data(tmp_path):
    folders = [
        write_folder(tmp_path / "a", [plain_row("q1"), plain_row("q1", 0.0, sample=1), plain_row("q2")], samples=2),
        write_folder(tmp_path / "b", [plain_row("q1", 0.0, failure="timeout")]),
        write_folder(tmp_path / "other", [plain_row("q1")], data="other"),
    ]
    runs = read_results(folders)
    rows = question_rows(runs)
    assert [(row.id, [row.score(run) for run in range(3)]) for row in rows] == [
        ("q1", [50.0, 0.0, None]), ("q2", [100.0, None, None]), ("q1", [None, None, 100.0]),
    ]
    lines = list(csv.DictReader(io.StringIO(questions_csv(rows, runs))))
    fields = ("question_id", "run", "sample", "percent", "failure")
    assert [tuple(line[name] for name in fields) for line in lines] == [
        ("q1", "a", "0", "100.0", ""), ("q1", "a", "1", "0.0", ""), ("q1", "b", "0", "0.0", "timeout"),
        ("q2", "a", "0", "100.0", ""), ("q1", "other", "0", "100.0", ""),
    ]


def test_texts_cannot_leave_the_pages_data(tmp_path):
    hostile = "</script><script>alert(1)</script><!--" * 20
    folder = write_folder(tmp_path / "r", [plain_row("<b>", pred=hostile, input=hostile, answers=[hostile])])
    runs = read_results([folder])
    text, _ = questions_json(question_rows(runs), runs, {})
    (row,) = json.loads(text)["rows"]
    assert "<" not in text and row["text"].startswith("</script>") and len(row["text"]) == 400 and row["id"] == "<b>"


def test_the_page_and_the_pack_show_the_same_characters_as_signs(tmp_path):
    script = resources.files("mem_agent.report").joinpath("web/questions.js").read_text(encoding="utf-8")
    steering = re.search(r"const STEERING = /(.*)/g;", script)[1]
    every = [chr(n) for n in range(0x3000)]
    assert [c for c in every if printable(c) != c] == [c for c in every if re.match(steering, c)]
    assert main([str(write_folder(tmp_path / "a\u202eb\x07", [plain_row("a")]))]) == 0
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "a\ufffdb\ufffd" in page and printable(shown := re.sub("(?s)<script.*?</script>", "", page)) == shown


def test_a_page_holds_a_part_of_every_file_and_the_csv_all(tmp_path, monkeypatch):
    monkeypatch.setattr(questions, "MOST", 10)
    runs = read_results([write_run(tmp_path / "r", lengths=("50", "200"), questions=20)])
    rows = question_rows(runs)
    text, shown = questions_json(rows, runs, {})
    assert shown == 10 and [row["file"] for row in json.loads(text)["rows"]] == ["50"] * 5 + ["200"] * 5
    assert len(questions_csv(rows, runs).splitlines()) == 41
    assert main([str(tmp_path / "r")]) == 0
    assert "30 questions are not on this page" in (tmp_path / "report" / "index.html").read_text()


@pytest.mark.parametrize(("samples", "shown"), [
    ([11], []), ([1, 11], ["50"]), ([6, 6, 4, 1], ["50", "52"]), ([1] * 12, [str(50 + file) for file in range(10)]),
])
def test_a_question_is_shown_with_all_its_answers_or_not_at_all(tmp_path, monkeypatch, samples, shown):
    """A file's first question was shown however many answers it had, and each of however many files."""
    monkeypatch.setattr(questions, "MOST", 10)
    folders = [write_folder(tmp_path / str(file), [plain_row("a", sample=n) for n in range(count)], str(50 + file))
               for file, count in enumerate(samples)]
    runs = read_results(folders)
    data, count = questions_json(question_rows(runs), runs, {})
    assert [row["file"] for row in json.loads(data)["rows"]] == shown and count == len(shown)


# --- links into pages of trajectories -------------------------------------------------------------------------------


@pytest.fixture
def written(monkeypatch):
    """Pages that the viewer was asked to write."""
    pages = []

    def write_viewer(folder, output):
        pages.append((folder.name, output.name))
        output.write_text("")

    module = SimpleNamespace(write_viewer=write_viewer)
    monkeypatch.setitem(sys.modules, "mem_agent.report.viewer", SimpleNamespace(page=module))
    monkeypatch.setitem(sys.modules, "mem_agent.report.viewer.page", module)
    return pages


def kept(folder):
    (folder / "trajectories").mkdir()
    (folder / "trajectories" / "50.jsonl").touch()
    return folder


def results_of(folder, reply):
    return write(write_folder(folder, [plain_row("a")]), "50", [
        Trace(id="50-a-0", length="50", question_id="a", group="a", question="Who?", prediction=reply,
              turns=(TraceTurn(kind="final", reply=reply),)),
    ])


def test_a_page_is_linked_where_it_lies(tmp_path):
    first, second = (results_of(tmp_path / name, name[:3]) for name in ("a <&\"' b", "c"))
    output = tmp_path / "out" / "report"
    output.mkdir(parents=True)
    assert linked_pages({first: "a", second: "c"}, output, write=False) == {}
    write_viewer(first, first / "view.html")
    own = {first: "../../a%20%3C%26%22%27%20b/view.html"}
    assert linked_pages({first: "a", second: "c"}, output, write=False) == own
    write_viewer(second, output / "view.html")
    assert linked_pages({first: "a", second: "c"}, output, write=False) == own
    assert linked_pages({second: "c"}, output, write=False) == {second: "view.html"}, "that of the only folder"


def test_a_page_beside_the_report_is_linked_for_the_folder_that_it_is_of(tmp_path):
    """An earlier report of another folder left it there, whose files are as long and whose name may be the same."""
    first, second = (results_of(tmp_path / name / "same", f"from {name}") for name in "ab")
    output = tmp_path / "report"
    write_viewer(first, output / "view.html")
    assert linked_pages({first: "same"}, output, write=False) == {first: "view.html"}
    assert linked_pages({second: "same"}, output, write=False) == {}
    write_viewer(second, second / "view.html")
    assert linked_pages({second: "same"}, output, write=False) == {second: "../b/same/view.html"}
    write_viewer(second, output / "view.html")
    assert linked_pages({second: "same"}, output, write=False) == {second: "../b/same/view.html"}, "its own first"


def test_a_page_of_trajectories_to_which_others_came_is_not_linked(tmp_path):
    folder = results_of(tmp_path / "results", "gold")
    write_viewer(folder, folder / "view.html")
    moved = folder.rename(tmp_path / "moved")
    assert linked_pages({moved: "moved"}, tmp_path, write=False) == {moved: "moved/view.html"}
    write(moved, "100", [Trace(id="100-a-0", length="100", question_id="a", group="a")])
    assert linked_pages({moved: "moved"}, tmp_path, write=False) == {}


SCRIPT = b"<script>alert(1)</script>"
OTHERS = {
    "nothing": lambda page: b"",
    "a script": lambda page: SCRIPT,
    "another script": lambda page: page[:page.index(b'"use strict"')] + b"alert(1)</script></body></html>",
    "more at the end": lambda page: page + SCRIPT,
    "more in front": lambda page: SCRIPT + page,
    "a way to another page": lambda page: page.replace(b"<body>", b'<meta http-equiv="refresh" content="0;url=x">'),
    "markup as title": lambda page: page.replace(b"results", SCRIPT),
    "markup in a part": lambda page: page.replace(b'id="part0">', b'id="part0"></script>' + SCRIPT),
    "a part that is no base64": lambda page: page.replace(b'id="part0">', b'id="part0">A'),
    "no UTF-8": lambda page: page + b"\xff",
    "another policy": lambda page: page.replace(b"script-src", b"script-src 'unsafe-inline'"),
    "no end": lambda page: page + b" " * MOST_BYTES,
    "titles without end": lambda page: b"<title>" * 100_000,
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_page_of_somebody_else_is_not_linked(tmp_path, other):
    """The browser would run its script with what a file of the disk may."""
    folder = write_small_results(write_folder(tmp_path / "results", [plain_row("a")]))
    page = write_viewer(folder, folder / "view.html").read_bytes()
    output = tmp_path / "report"
    output.mkdir()
    assert OTHERS[other](page) != page and linked_pages({folder: "a"}, output, write=False)
    for place in (folder, output):
        (place / "view.html").write_bytes(OTHERS[other](page))
    assert linked_pages({folder: "a"}, output, write=False) == {}


def test_the_pages_are_written_beside_the_report(tmp_path, written, capsys):
    one = kept(write_folder(tmp_path / "one", [plain_row("a")]))
    assert main([str(one), "--viewer", "--output", str(tmp_path / "r1")]) == 0
    run = kept(write_training_run(tmp_path / "my <run>"))
    kept(write_folder(run / "eval" / "before", [plain_row("a")]))
    write_folder(run / "eval" / "nothing kept", [plain_row("a")])
    assert main([str(run), "--viewer", "--output", str(tmp_path / "r2")]) == 0
    assert written == [("one", "view.html"), ("my <run>", "view_my-run.html"), ("before", "view_before.html")]
    page = (tmp_path / "r2" / "index.html").read_text()
    assert '<a href="view_my-run.html">Trajectories of <bdi>my &lt;run&gt;</bdi></a>' in page
    assert '"viewer":"view_before.html"' in page


def test_without_trajectories_there_is_no_page_to_write(tmp_path, written, capsys):
    folder = write_folder(tmp_path / "one", [plain_row("a")])
    assert main([str(folder), "--viewer"]) == 1
    assert "KEEP_TRAJECTORIES" in capsys.readouterr().err and written == []
