"""What a report says of results: counts, missing answers, comparability, published rows, and one-line errors."""

import csv
import io

import orjson
import pytest

from mem_agent.evaluation.results import read_results
from mem_agent.evaluation.summary import summarise
from mem_agent.report.__main__ import main, make_report
from mem_agent.report.figures import draw
from mem_agent.report.page import warnings, wrong_answers
from mem_agent.report.published import METRIC, PUBLISHED, half_width, published_comparisons, published_rows
from mem_agent.report.tables import accuracy_table, agent_table, markdown, results_csv
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.fake_results import plain_row as row
from mem_agent.tests.helpers.fake_results import write_folder as folder
from mem_agent.tests.helpers.fake_results import write_run


def summaries_of(runs):
    return [summarise(run.label, cell) for run in runs for cell in run.cells]


def test_what_an_agent_counts_has_a_column(tmp_path):
    counted = [("memagent", {"chunks_read": 3}), ("rememr1", {"chunks_read": 3, "updates": 2, "cached_tokens": 5})]
    runs = [folder(tmp_path / name, [row("a", counts={"turns": 4, **counts})]) for name, counts in counted]
    summaries = summaries_of(read_results(runs))
    lines = markdown(agent_table(summaries)).splitlines()
    assert lines[2] == "| run | length | chunks read | updates |"
    assert lines[4:6] == ["| memagent | 50 | 3.00 | – |", "| rememr1 | 50 | 3.00 | 2.00 |"]
    first, second = csv.DictReader(results_csv(summaries, {}).splitlines())
    assert (first["updates"], second["updates"], second["cached_tokens"]) == ("", "2.0", "5.0")


def test_claimed_length_without_rows_is_shown_as_such(tmp_path):
    run = folder(tmp_path / "run", [row("a")])
    claimed = {"data": {"50": "x", "100": "y"}, "questions": {"50": 1, "100": 7}}
    (run / "run.json").write_bytes(orjson.dumps(orjson.loads((run / "run.json").read_bytes()) | claimed))
    runs = read_results([run])
    assert "run, multi-document QA, 100: no rows yet." in warnings(runs, summaries_of(runs))
    assert make_report([run], tmp_path / "report").is_file()


def test_of_very_many_lengths_without_numbers_the_first_are_drawn(tmp_path):
    run = folder(tmp_path / "run", [row("a")], "vt_l0")
    names = [f"vt_l{number}" for number in range(1_100)]
    claimed = {"data": dict.fromkeys(names, "x"), "questions": dict.fromkeys(names, 1)}
    (run / "run.json").write_bytes(orjson.dumps(orjson.loads((run / "run.json").read_bytes()) | claimed))
    plots = draw(summaries_of(read_results([run])), {})
    assert [plot.name for plot in plots] == ["accuracy", "turns", "seconds"]
    assert all(plot.caption.endswith(" Of a task's lengths the first 64 are drawn.") for plot in plots)


def test_runs_of_other_data_are_marked(tmp_path):
    first = folder(tmp_path / "first", [row("a"), row("b", score=0.0)])
    same = folder(tmp_path / "same", [row("a"), row("b")])
    other = folder(tmp_path / "other", [row("a"), row("b")], data="different")
    runs = read_results([first, same, other])
    assert "50: not comparable, because the data files differ: first, same | other. " in " ".join(
        warnings(runs, summaries_of(runs))
    )
    table = accuracy_table(summaries_of(runs), "sub_em")
    assert [cells[1].endswith("*") for cells in table.rows] == [False, False, True]


JUDGED = {"scores": {"strict": 0.0, "medium": 1.0}, "headline": "medium", "task": "gsm8k"}


def test_an_answer_is_wrong_by_the_metric_that_its_task_is_judged_by(tmp_path):
    """GSM8K lists ``strict`` first and is judged by ``medium``."""
    rows = [row("a", **JUDGED), row("b", **JUDGED | {"scores": {"strict": 1.0, "medium": 0.0}})]
    for each in rows:
        for name in ("em", "f1", "sub_em", "sub_em_legacy"):
            del each[name]
    (run,) = read_results([folder(tmp_path / "run", rows, stem="gsm8k")])
    wrong = wrong_answers(run)
    assert wrong and wrong.count == 1 and wrong.first[0].where.endswith("/b")


def test_the_csv_has_every_metric_beside_published_rows(tmp_path):
    other = [row("a", **JUDGED)]
    folders = [write_run(tmp_path / "hqa", lengths=("50",), questions=4), folder(tmp_path / "math", other, "gsm8k")]
    (page,) = [make_report(folders, tmp_path / "report")]
    lines = list(csv.DictReader(io.StringIO((page.parent / "results.csv").read_text())))
    assert any(line["kind"] == "published" for line in lines)
    assert [line["medium"] for line in lines if line["run"] == "math"] == ["100.0"]


def test_published_rows_stand_in_their_metric_only(tmp_path):
    run = write_run(tmp_path / "run", lengths=("50", "6400"), questions=8)
    output = make_report([run], tmp_path / "report").parent
    found = list(csv.DictReader(io.StringIO((output / "results.csv").read_text())))
    published = [line for line in found if line["kind"] == "published"]
    assert len(published) == sum(len(p.accuracy) for p in published_rows(""))
    assert all(line[METRIC] and line["source"] and not line["sub_em"] and not line["em"] for line in published)
    sections = (output / "report.md").read_text().split("\n### ")
    shown = [section.partition("\n")[0] for section in sections if "(published)" in section and "MemAgent" in section]
    assert shown == ["Beside systems published on HotpotQA",
                     "multi-document QA: sub_em_legacy (published metric) by documents",
                     "Sources of the numbers on HotpotQA"]


@pytest.mark.parametrize("arguments", [["--no-published"], []])
def test_results_without_a_published_length_have_no_published_rows(tmp_path, arguments, capsys):
    run = write_run(tmp_path / "run", lengths=("50",) if arguments else ("3", "8"), questions=4)
    assert main([str(run), *arguments]) == 0
    assert "QwenLong" not in (tmp_path / "report" / "index.html").read_text()
    assert str(tmp_path / "report" / "index.html") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("system", "dataset", "length", "number"),
    [
        ("MemAgent-7B, RL (v2)", "HotpotQA", "25600", 71.88),
        ("MemAgent-14B, RL (v1)", "HotpotQA", "50", 83.59),
        ("Qwen2.5-14B-Instruct-1M", "HotpotQA", "6400", 0.0),
        ("QwenLong-L1-32B", "HotpotQA", "800", 31.25),
        ("ReMemR1-7B", "HotpotQA", "6400", 80.8),
        ("ReMemR1-7B", "2WikiMultiHopQA", "6400", 50.3),
    ],
)
def test_published_number(system, dataset, length, number):
    (found,) = [p for p in PUBLISHED if (p.system, p.dataset) == (system, dataset)]
    assert found.accuracy[length] == number


def test_published_systems_are_named_once_per_dataset():
    names = [(p.dataset, p.system) for p in PUBLISHED]
    assert len(set(names)) == len(names)
    assert published_rows("niah_single_1") == ()
    assert half_width(80.0) == pytest.approx(6.93, abs=0.01)


def test_standing_is_level_unless_both_intervals_leave_room(tmp_path):
    right, wrong = [row(str(i)) for i in range(100)], [row(str(i), score=0.0) for i in range(100)]
    rows = {"all": right, "none": wrong, "most": right[:80] + wrong[80:]}
    runs = read_results([folder(tmp_path / name, made) for name, made in rows.items()])
    compared = published_comparisons(summaries_of(runs))
    verdicts = {c.run: c.verdict for c in compared if c.published.system == "MemAgent-7B, RL (v2)"}
    assert verdicts == {"all": "above", "none": "below", "most": "level"}


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: path.mkdir(), "no results"),
        (lambda path: folder(path, []), "no rows yet"),
        (lambda path: (folder(path, [row("a")]) / "run.json").write_text("{"), "damaged"),
        (lambda path: folder(path, [row("a"), {"_id": "b"}]), "line 2 is no row of an evaluation"),
    ],
)
def test_bad_folder_is_one_clear_line(tmp_path, prepare, message, capsys):
    prepare(tmp_path / "run")
    assert main([str(tmp_path / "run")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1


def test_a_folder_of_code_is_refused(tmp_path):
    run = folder(tmp_path / "run", [row("a")])
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "__init__.py").touch()
    with pytest.raises(MemAgentError, match="source code"):
        make_report([run], tmp_path / "code")
