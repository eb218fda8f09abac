"""The table of questions: what stands in a row, what a page can hold, and what it links."""

import csv
import io
import json

from mem_agent.evaluation.results import read_results
from mem_agent.report import questions
from mem_agent.report.__main__ import main
from mem_agent.report.questions import answers_of, questions_csv, questions_json
from mem_agent.report.viewer.page import write_viewer
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
    answers = answers_of(runs)
    text, lacking = questions_json(answers, runs, {})
    given = [(row["id"], {run: [each["score"] for each in found] for run, found in row["answers"].items()})
             for row in json.loads(text)["rows"]]
    assert lacking == 0 and given == [
        ("q1", {"0": [100.0, 0.0], "1": [0.0]}), ("q2", {"0": [100.0]}), ("q1", {"2": [100.0]})]
    lines = list(csv.DictReader(io.StringIO(questions_csv(answers))))
    fields = ("question_id", "run", "sample", "percent", "failure")
    assert [tuple(line[name] for name in fields) for line in lines] == [
        ("q1", "a", "0", "100.0", ""), ("q1", "a", "1", "0.0", ""), ("q1", "b", "0", "0.0", "timeout"),
        ("q2", "a", "0", "100.0", ""), ("q1", "other", "0", "100.0", ""),
    ]


def test_texts_cannot_leave_the_pages_data(tmp_path):
    hostile = "</script><script>alert(1)</script><!--" * 20
    folder = write_folder(tmp_path / "r", [plain_row("<b>", pred=hostile, input=hostile, answers=[hostile])])
    runs = read_results([folder])
    text, _ = questions_json(answers_of(runs), runs, {})
    (row,) = json.loads(text)["rows"]
    assert "<" not in text and row["text"].startswith("</script>") and len(row["text"]) == 400 and row["id"] == "<b>"


def test_a_page_holds_a_part_of_every_file_and_the_csv_all(tmp_path, monkeypatch):
    monkeypatch.setattr(questions, "MOST", 10)
    runs = read_results([write_run(tmp_path / "r", lengths=("50", "200"), questions=20)])
    answers = answers_of(runs)
    text, lacking = questions_json(answers, runs, {})
    assert lacking == 30 and [row["file"] for row in json.loads(text)["rows"]] == ["50"] * 5 + ["200"] * 5
    assert len(questions_csv(answers).splitlines()) == 41
    assert main([str(tmp_path / "r")]) == 0
    assert "30 questions are not on this page" in (tmp_path / "report" / "index.html").read_text()


def results_of(folder, reply):
    return write(write_folder(folder, [plain_row("a")]), "50", [
        Trace(id="50-a-0", length="50", question_id="a", group="a", question="Who?", prediction=reply,
              turns=(TraceTurn(kind="final", reply=reply),)),
    ])


def test_a_page_of_trajectories_is_linked_where_it_lies(tmp_path):
    first, second = (results_of(tmp_path / name, name[:3]) for name in ("a <&\"' b", "c"))
    write_viewer(first, first / "view.html")
    assert main([str(first), str(second), "--output", str(tmp_path / "out" / "report")]) == 0
    page = (tmp_path / "out" / "report" / "index.html").read_text()
    assert '"viewer":"../../a%20%3C%26%22%27%20b/view.html"' in page.replace("\\u003c", "<") and '"viewer":""' in page


def test_pages_of_trajectories_are_written_beside_the_report(tmp_path):
    run = write(write_training_run(tmp_path / "my <run>"), "rollout_000001", [Trace(id="1", rollout=1)])
    results_of(run / "eval" / "before", "x")
    write_folder(run / "eval" / "nothing kept", [plain_row("a")])
    assert main([str(run), "--viewer", "--output", str(tmp_path / "r2")]) == 0
    assert sorted(path.name for path in (tmp_path / "r2").glob("view*")) == ["view_before.html", "view_my-run.html"]
    page = (tmp_path / "r2" / "index.html").read_text()
    assert '<a href="view_my-run.html">Trajectories of <bdi>my &lt;run&gt;</bdi></a>' in page
    assert '"viewer":"view_before.html"' in page


def test_without_trajectories_there_is_no_page_to_write(tmp_path, capsys):
    folder = write_folder(tmp_path / "one", [plain_row("a")])
    assert main([str(folder), "--viewer"]) == 1
    assert "KEEP_TRAJECTORIES" in capsys.readouterr().err
