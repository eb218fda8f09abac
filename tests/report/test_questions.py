"""The table of questions: what stands in a row, what a page can hold, and what it links."""

import csv
import io
import json
import sys
from types import SimpleNamespace

import pytest

from mem_agent.evaluation.results import read_results
from mem_agent.report import questions
from mem_agent.report.__main__ import main
from mem_agent.report.questions import question_rows, questions_csv, questions_json
from mem_agent.report.viewer.page import write_viewer
from mem_agent.report.viewer_pages import linked_pages
from mem_agent.tests.helpers.fake_results import plain_row, write_folder, write_run
from mem_agent.tests.helpers.fake_run import write_training_run
from mem_agent.tests.helpers.traces import write
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


def test_a_page_holds_a_part_of_every_file_and_the_csv_all(tmp_path, monkeypatch):
    monkeypatch.setattr(questions, "MOST", 10)
    runs = read_results([write_run(tmp_path / "r", lengths=("50", "200"), questions=20)])
    rows = question_rows(runs)
    text, shown = questions_json(rows, runs, {})
    assert shown == 10 and [row["file"] for row in json.loads(text)["rows"]] == ["50"] * 5 + ["200"] * 5
    assert len(questions_csv(rows, runs).splitlines()) == 41
    assert main([str(tmp_path / "r")]) == 0
    assert "30 questions are not on this page" in (tmp_path / "report" / "index.html").read_text()


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
