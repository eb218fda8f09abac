"""What a report says of results: counts, missing answers, comparability, published rows, headlines, errors."""

import csv
import io
import shutil

import orjson
import pandas as pd
import pytest

from mem_agent.evaluation.results import read_results
from mem_agent.evaluation.summary import summarise
from mem_agent.report.__main__ import main, make_report
from mem_agent.report.data import frame_of, results_csv
from mem_agent.report.page import MOST, headlines, warnings
from mem_agent.report.published import METRIC, PUBLISHED, half_width, verdict
from mem_agent.report.tables import accuracy_table, evaluation_tables
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.fake_results import plain_row as row
from mem_agent.tests.helpers.fake_results import write_folder as folder
from mem_agent.tests.helpers.fake_results import write_run


def summaries_of(runs):
    return [summarise(run.label, cell) for run in runs for cell in run.cells]


def lines_of(output, name="results.csv"):
    return list(csv.DictReader(io.StringIO((output / name).read_text())))


def test_what_an_agent_counts_has_a_column(tmp_path):
    counted = [("memagent", {"chunks_read": 3}), ("rememr1", {"chunks_read": 3, "updates": 2, "cached_tokens": 5})]
    runs = [folder(tmp_path / name, [row("a", counts={"turns": 4, **counts})]) for name, counts in counted]
    frame = frame_of(summaries_of(read_results(runs)))
    tables = evaluation_tables(frame, {"memagent": ("m", "–"), "rememr1": ("m", "–")}, {})
    agent = tables["cost"][-1]
    assert agent.header == ("run", "length", "chunks read", "updates")
    assert agent.rows == [("memagent", "50", "3.00", "–"), ("rememr1", "50", "3.00", "2.00")]
    first, second = csv.DictReader(results_csv(frame).splitlines())
    assert (first["updates"], second["updates"], second["cached_tokens"]) == ("", "2.0", "5.0")


def test_claimed_length_without_rows_is_shown_as_such(tmp_path):
    run = folder(tmp_path / "run", [row("a")])
    claimed = {"data": {"50": "x", "100": "y"}, "questions": {"50": 1, "100": 7}}
    (run / "run.json").write_bytes(orjson.dumps(orjson.loads((run / "run.json").read_bytes()) | claimed))
    runs = read_results([run])
    assert "run, multi-document QA, 100: no rows yet." in warnings(runs, summaries_of(runs))
    make_report([run], tmp_path / "report")
    assert [line["missing"] for line in lines_of(tmp_path / "report") if line["length"] == "100"][:1] == ["7"]


def test_runs_of_other_data_are_marked(tmp_path):
    first = folder(tmp_path / "first", [row("a"), row("b", score=0.0)])
    same = folder(tmp_path / "same", [row("a"), row("b")])
    other = folder(tmp_path / "other", [row("a"), row("b")], data="different")
    runs = read_results([first, same, other])
    assert "first, same | other. " in " ".join(warnings(runs, summaries_of(runs)))
    frame = frame_of(summaries_of(runs))
    (table,) = accuracy_table(frame[frame["metric"] == "sub_em"], "documents")
    assert [cells[1].endswith("*") for cells in table.rows] == [False, False, True]


def math_row(question, medium, **more):
    """GSM8K lists ``strict`` first and is judged by ``medium``."""
    made = row(question, scores={"strict": 1 - medium, "medium": medium}, headline="medium", task="gsm8k", **more)
    return {name: value for name, value in made.items() if name not in ("em", "f1", "sub_em", "sub_em_legacy")}


def test_an_answer_is_judged_by_the_metric_of_its_task_everywhere(tmp_path):
    run = folder(tmp_path / "run", [math_row("a", 1.0), math_row("b", 1.0), math_row("c", 0.0)], stem="gsm8k")
    printed = make_report([run], tmp_path / "report")
    assert "**66.7%** run: medium 66.7%" in printed and "| run | m | – | medium | 1 | 66.7 |" in printed
    assert {line["question_id"]: line["percent"] for line in lines_of(tmp_path / "report", "questions.csv")} == {
        "a": "100.0", "b": "100.0", "c": "0.0"}


def test_the_csv_has_every_metric_beside_published_rows(tmp_path):
    folders = [write_run(tmp_path / "hqa", lengths=("50",), questions=4, samples=2),
               folder(tmp_path / "math", [math_row("a", 1.0)], "gsm8k")]
    make_report(folders, tmp_path / "report")
    lines = lines_of(tmp_path / "report")
    assert any(line["kind"] == "published" for line in lines)
    assert [line["medium"] for line in lines if line["run"] == "math"] == ["100.0"]
    of_run = next(line for line in lines if line["run"] == "hqa")
    assert {"sub_em_low", "em", "f1_high", "turns", "pass@2", "best@2", "not_read", "memory_tokens/turn_1"} <= {
        name for name, value in of_run.items() if value}


def test_texts_in_the_csv_are_as_they_were_answered(tmp_path):
    texts = ["=1+1", "+49 30", "-5", "@home", 'a "b", c\n', "x"]
    run = folder(tmp_path / "run", [row(str(at), pred=text, input=text) for at, text in enumerate(texts)])
    make_report([run], tmp_path / "report")
    read = pd.read_csv(tmp_path / "report" / "questions.csv", dtype=str)
    assert list(read["prediction"]) == texts == list(read["question"])


def test_what_is_printed_is_no_part_of_a_page_of_its_own(tmp_path, capsys):
    """A run may be called like a heading of the report."""
    run = folder(tmp_path / "### Each run\n", [row("a")])
    assert main([str(run), "--output", str(tmp_path / "report")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# Evaluation of ### Each run") and "| mean of lengths |" in printed
    assert "Every metric" not in printed and printed.splitlines()[-1] == str(tmp_path / "report" / "index.html")


def test_failures_are_counted_by_kind(tmp_path):
    rows = [row("a"), *(row(name, 0.0, failure="timeout") for name in "bc")]
    make_report([folder(tmp_path / "run", rows)], tmp_path / "report")
    assert "| run | timeout | 2 |" in (tmp_path / "report" / "report.md").read_text()


def test_published_rows_stand_in_their_metric_only(tmp_path):
    run = write_run(tmp_path / "run", lengths=("50", "6400"), questions=8)
    make_report([run], tmp_path / "report")
    published = [line for line in lines_of(tmp_path / "report") if line["kind"] == "published"]
    hotpot = [row for row in PUBLISHED if row.dataset == "HotpotQA"]
    assert len(published) == sum(len(row.accuracy) for row in hotpot)
    assert all(line[METRIC] and line["source"] and not line["sub_em"] and not line["em"] for line in published)
    sections = (tmp_path / "report" / "report.md").read_text().split("\n### ")
    shown = [section.partition("\n")[0] for section in sections if "(published)" in section and "MemAgent" in section]
    assert shown == ["Beside systems published on HotpotQA",
                     "multi-document QA: sub_em_legacy (published metric) by documents",
                     "Sources of the numbers on HotpotQA"]


def test_rulers_average_stands_beside_what_is_published_of_it(tmp_path):
    tasks = ("niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2",
             "niah_multikey_3", "niah_multivalue", "niah_multiquery", "vt", "fwe")
    parts = [write_run(tmp_path / task, lengths=("8192",), questions=2, task=task, skill=2) for task in tasks]
    for part in parts[1:]:
        for file in part.glob("*_8192.jsonl"):
            shutil.copy(file, parts[0])
    run = orjson.loads((parts[0] / "run.json").read_bytes())
    names = [f"{task}_8192" for task in tasks]
    (parts[0] / "run.json").write_bytes(orjson.dumps(
        run | {"data": dict.fromkeys(names, "x"), "questions": dict.fromkeys(names, 2)}))
    make_report(parts[:1], tmp_path / "report")
    text = (tmp_path / "report" / "report.md").read_text()
    assert "### RULER: MemAgent's ten by" in text and "| run | length | niah_single_1 | " in text
    assert "| MemAgent-14B, RL (v1) (published) | 97.5 |" in text


def test_results_without_a_published_length_have_no_published_rows(tmp_path):
    make_report([write_run(tmp_path / "run", lengths=("3", "8"), questions=4)], tmp_path / "report")
    assert "QwenLong" not in (tmp_path / "report" / "index.html").read_text()


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


@pytest.mark.parametrize(
    ("mine", "half", "expected"), [(100.0, 3.0, "above"), (0.0, 3.0, "below"), (85.0, 7.0, "level")])
def test_standing_is_level_unless_both_intervals_leave_room(mine, half, expected):
    assert half_width(80.0) == pytest.approx(6.93, abs=0.01)
    assert verdict(mine, half, 81.25) == expected


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


# --- headlines ------------------------------------------------------------------------------------------------------


def evaluated(tmp_path, **scores):
    """One folder for each name, with these scores of questions 0, 1, 2 ..."""
    return read_results([
        folder(tmp_path / name, [row(str(q), score) for q, score in enumerate(each)])
        for name, each in scores.items()
    ])


@pytest.mark.parametrize(("second", "number", "reading", "said"), [
    ([1.0] * 40, "+100.0", "better", "after is better than before: 0.0% to 100.0% in sub_em, +100.0 points"),
    ([0.0] * 40, "+0.0", "", "after and before: no clear difference: 0.0% to 0.0% in sub_em"),
    ([1.0] + [0.0] * 39, "+2.5", "", "p = 1.0000 (lowest possible); 40 questions."),
])
def test_a_difference_is_read_off_its_interval(tmp_path, second, number, reading, said):
    (line,) = headlines(evaluated(tmp_path, before=[0.0] * 40, after=second), [])
    assert (line.number, line.reading) == (number, reading) and said in line.sentence


def test_a_p_at_its_floor_is_said_as_such(tmp_path):
    (line,) = headlines(evaluated(tmp_path, before=[1.0] * 40, after=[0.0] * 40), [])
    assert line.reading == "worse" and "p < 0.0001 (10,000 resamples)" in line.sentence


def test_one_evaluation_is_said_with_its_interval(tmp_path):
    (line,) = headlines(evaluated(tmp_path, only=[1.0] * 30 + [0.0] * 10), [])
    assert line.number == "75.0%" and "only: sub_em 75.0% with a 95% interval of " in line.sentence


def test_evaluations_of_other_data_are_not_compared(tmp_path):
    folders = [folder(tmp_path / data, [row("a")], data=data) for data in ("x", "y")]
    (line,) = headlines(read_results(folders), [])
    assert line.number == "–" and "y and x have no answers to the same data" in line.sentence


def test_no_more_headlines_than_are_read(tmp_path):
    runs = evaluated(tmp_path, **{f"r{number}": [1.0, 0.0] for number in range(MOST + 3)})
    found = headlines(runs, [])
    assert len(found) == MOST + 1 and "2 earlier comparisons" in found[-1].sentence
