"""What a report says of runs and results: one report that most tests read, and the rules behind its numbers."""

import csv
import io
import json
import shutil
from math import isnan
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import numpy as np
import orjson
import pandas as pd
import pytest
from matplotlib.figure import Figure

from mem_agent.evaluation.results import read_results
from mem_agent.evaluation.summary import summarise
from mem_agent.hooks.traces import Trace, TraceTurn
from mem_agent.memsifter.table import FILE, SifterScores, sifter_scores, write_scores
from mem_agent.report import plots
from mem_agent.report.__main__ import main, make_report
from mem_agent.report.data import (
    COLUMNS,
    TrainingRun,
    evaluations_of,
    frame_of,
    points_of,
    read_training_runs,
    results_csv,
)
from mem_agent.report.page import headlines, warnings
from mem_agent.report.published import METRIC, PUBLISHED, half_width, published_beside, published_frame, verdict
from mem_agent.report.questions import answers_of, questions_csv, questions_json
from mem_agent.report.sifter import sifter_plot, sifter_tables
from mem_agent.report.tables import accuracy_table, evaluation_tables
from mem_agent.report.viewer.page import write_viewer
from mem_agent.tests.helpers.fake_results import plain_row as row
from mem_agent.tests.helpers.fake_results import write_folder as folder
from mem_agent.tests.helpers.fake_results import write_run
from mem_agent.tests.helpers.fake_run import write_training_run
from mem_agent.tests.helpers.sifter_files import small_results
from mem_agent.tests.helpers.traces import write

HOSTILE = "</script><script>alert(1)</script><!--" * 20


def math_row(question, medium, **more):
    """GSM8K lists ``strict`` first and is judged by ``medium``."""
    made = row(question, scores={"strict": 1 - medium, "medium": medium}, headline="medium", task="gsm8k", **more)
    return {name: value for name, value in made.items() if name not in ("em", "f1", "sub_em", "sub_em_legacy")}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run with its evaluations, results elsewhere with texts that attack, a task with a metric of its own."""
    root = tmp_path_factory.mktemp("report")
    run = write_training_run(root / "mine", rollouts=60, evaluated_every=20)
    for name in ("before", "during-iter_0000019", "during-iter_0000039", "during-iter_0000059", "after-iter_0000059"):
        write_run(run / "eval" / name, lengths=("50",), questions=16, skill=0.5 if name != "after-iter_0000059" else 2)
    unfinished = run / "eval" / "during-iter_0000039" / "50.jsonl"
    unfinished.write_bytes(b"".join(unfinished.read_bytes().splitlines(keepends=True)[:3]))
    other = write_run(root / "### Each run <b>\n", lengths=("50", "6400"), questions=4, samples=2, data="other")
    math = folder(root / "math", [math_row("a", 1.0), math_row("<b>", 0.0, pred=HOSTILE, input=HOSTILE)], "gsm8k")
    turn = TraceTurn(kind="final", reply="x")
    write(math, "gsm8k", [Trace(id="gsm8k-a-0", length="gsm8k", question_id="a", group="a", turns=(turn,))])
    write_viewer(math, math / "view.html")
    output = root / "a <b>" / "report"
    printed = make_report([run, run, other, math], output)
    files = {path.name: path.read_text() for path in output.iterdir() if path.suffix != ".png"}
    lines = {name: list(csv.DictReader(io.StringIO(files[name]))) for name in ("results.csv", "questions.csv")}
    return SimpleNamespace(printed=printed, text=files["report.md"], page=files["index.html"], lines=lines,
                           names={path.name for path in output.iterdir()})


def section(text, title):
    return next(part for part in text.split("\n### ") if part.startswith(title))


def test_everything_stands_beside_the_page(made):
    assert made.names == {"index.html", "report.md", "results.csv", "questions.csv", *(f"{name}.png" for name in (
        "training", "training_signal", "training_updates", "accuracy", "accuracy_published", "turns", "seconds",
        "memory_tokens", "gold_recall"))}
    for part in ("training", "standing", "accuracy", "questions", "cost", "memory", "provenance", "caveats"):
        assert f'<section id="{part}">' in made.page
    assert "sifter" not in made.page and "http" not in made.page.replace("http-equiv", "").split("<script")[0]


def test_the_csv_has_every_metric_beside_published_rows(made):
    runs = {line["run"]: line for line in made.lines["results.csv"] if line["kind"] == "run"}
    assert runs["math"]["medium"] == "50.0"
    assert {"sub_em_low", "em", "f1_high", "turns", "pass@2", "best@2", "not_read", "memory_tokens/turn_1"} <= {
        name for name, value in next(line for name, line in runs.items() if "Each run" in name).items() if value}
    assert not any("during-" in name for name in runs)


def test_published_rows_stand_in_their_metric_only(made):
    published = [line for line in made.lines["results.csv"] if line["kind"] == "published"]
    hotpot = [row for row in PUBLISHED if row.dataset == "HotpotQA"]
    assert len(published) == sum(len(row.accuracy) for row in hotpot)
    assert all(line[METRIC] and line["source"] and not line["sub_em"] and not line["em"] for line in published)
    shown = [part for part in made.text.split("\n### ") if "MemAgent-7B, RL (v1) (published)" in part]
    assert [part.partition("\n")[0] for part in shown] == ["Beside systems published on HotpotQA",
                     "multi-document QA: sub_em_legacy (published metric) by documents",
                     "Sources of the numbers on HotpotQA"]


def test_an_answer_is_judged_by_the_metric_of_its_task(made):
    math = [line for line in made.lines["questions.csv"] if line["run"] == "math"]
    assert {(line["question_id"], line["metric"], line["percent"]) for line in math} == {
        ("a", "medium", "100.0"), ("<b>", "medium", "0.0")}
    assert "| math | m | – | gsm8k | medium | 1 | 50.0 |" in made.printed


def test_texts_are_as_they_were_answered_and_cannot_leave_the_page(made):
    (line,) = [line for line in made.lines["questions.csv"] if line["question_id"] == "<b>"]
    assert line["prediction"] == HOSTILE == line["question"]
    assert "<script>alert" not in made.page and "&lt;b&gt;" in made.page
    data = json.loads(made.page.split('id="question-data">')[1].split("</script>")[0])
    assert [row["text"][:9] for row in data["rows"] if row["id"] == "<b>"] == ["</script>"]
    assert [run["viewer"] for run in data["runs"]] == ["", "", "", "../../math/view.html"]


def test_what_is_printed_is_no_part_of_a_page_of_its_own(made):
    """A run may be called like a heading of the report."""
    assert made.printed.startswith("# Training of mine") and "| mean of lengths |" in made.printed
    assert "Every metric" not in made.printed and "after-iter_0000059 is better than before" in made.printed


def test_evaluations_between_rollouts_are_points_and_compared_with_nothing(made):
    lines = section(made.text, "Evaluated while training").splitlines()
    scores = {cells[1]: cells[4] for cells in (line.split(" | ") for line in lines if " 50 " in line)}
    assert list(scores) == ["0", "20", "40", "60"]
    assert {at: "[" in score for at, score in scores.items()} == {"0": True, "20": True, "40": False, "60": True}
    assert scores["60"].startswith("100.0")  # of what was answered after it, not within


# --- results --------------------------------------------------------------------------------------------------------


def summaries_of(runs):
    return [summarise(run.label, cell) for run in runs for cell in run.cells]


def test_what_an_agent_counts_has_a_column(tmp_path):
    counted = [("memagent", {"chunks_read": 3}), ("rememr1", {"chunks_read": 3, "updates": 2, "cached_tokens": 5})]
    runs = [folder(tmp_path / name, [row("a", counts={"turns": 4, **counts})]) for name, counts in counted]
    frame = frame_of(summaries_of(read_results(runs)))
    agent = evaluation_tables(frame, {"memagent": ("m", "–"), "rememr1": ("m", "–")}, {})["cost"][-1]
    assert agent.header == ("run", "length", "chunks_read", "updates")
    assert agent.rows == [("memagent", "50", "3.00", "–"), ("rememr1", "50", "3.00", "2.00")]
    first, second = csv.DictReader(results_csv(frame).splitlines())
    assert (first["updates"], second["updates"], second["cached_tokens"]) == ("", "2.0", "5.0")


def test_other_data_and_missing_rows_are_said(tmp_path):
    first = folder(tmp_path / "first", [row("a"), row("b", score=0.0)])
    other = folder(tmp_path / "other", [row("a"), row("b")], data="different")
    claimed = {"data": {"50": "same", "100": "y"}, "questions": {"50": 2, "100": 7}}
    (first / "run.json").write_bytes(orjson.dumps(orjson.loads((first / "run.json").read_bytes()) | claimed))
    runs = read_results([first, folder(tmp_path / "same", [row("a"), row("b")]), other])
    found = warnings(runs, summaries_of(runs))
    assert any("first, same | other. " in line for line in found)
    assert "first, multi-document QA, 100: no rows yet." in found
    frame = frame_of(summaries_of(runs))
    (table,) = accuracy_table(frame[frame["metric"] == "sub_em"], "documents")
    assert [cells[1].endswith("*") for cells in table.rows] == [False, False, True]
    missing = [line["missing"] for line in csv.DictReader(results_csv(frame).splitlines()) if line["length"] == "100"]
    assert missing == ["7"]


def test_rulers_average_stands_beside_what_is_published_of_it(tmp_path):
    tasks = ("niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2",
             "niah_multikey_3", "niah_multivalue", "niah_multiquery", "vt", "fwe")
    parts = [write_run(tmp_path / task, lengths=("8192",), questions=2, task=task, skill=2) for task in tasks]
    for part in parts[1:]:
        shutil.copy(next(part.glob("*_8192.jsonl")), parts[0])
    run = orjson.loads((parts[0] / "run.json").read_bytes())
    names = [f"{task}_8192" for task in tasks]
    claimed = {"data": dict.fromkeys(names, "x"), "questions": dict.fromkeys(names, 2)}
    (parts[0] / "run.json").write_bytes(orjson.dumps(run | claimed))
    ours = frame_of(summaries_of(read_results(parts[:1])))
    beside = published_beside(ours)
    frame = pd.concat([ours, published_frame(beside)], ignore_index=True)
    tables = evaluation_tables(frame, {tasks[0]: ("m", "–")}, beside)
    text = "".join(table.markdown() for found in tables.values() for table in found)
    assert "### RULER: MemAgent's ten by tokens" in text and "| run | length | niah_single_1 | " in text
    assert "| MemAgent-14B, RL (v1) (published) | 97.5 |" in text


@pytest.mark.parametrize(("system", "dataset", "length", "number"), [
    ("MemAgent-7B, RL (v2)", "HotpotQA", "25600", 71.88), ("Qwen2.5-14B-Instruct-1M", "HotpotQA", "6400", 0.0),
    ("ReMemR1-7B", "2WikiMultiHopQA", "6400", 50.3),
])
def test_published_number(system, dataset, length, number):
    (found,) = [p for p in PUBLISHED if (p.system, p.dataset) == (system, dataset)]
    assert found.accuracy[length] == number


@pytest.mark.parametrize(("mine", "half", "expected"), [
    (100.0, 3.0, "above"), (0.0, 3.0, "below"), (85.0, 7.0, "level")])
def test_standing_is_level_unless_both_intervals_leave_room(mine, half, expected):
    assert half_width(80.0) == pytest.approx(6.93, abs=0.01) and verdict(mine, half, 81.25) == expected


def write_text(path, name, text):
    path.mkdir(exist_ok=True)
    (path / name).write_text(text)


@pytest.mark.parametrize(("prepare", "message"), [
    (lambda path: path.mkdir(), "no results"), (lambda path: folder(path, []), "no rows yet"),
    (lambda path: (folder(path, [row("a")]) / "run.json").write_text("{"), "damaged"),
    (lambda path: folder(path, [row("a"), {"_id": "b"}]), "line 2 is no row of an evaluation"),
    (lambda path: small_results(path), "mem-agent sifter-table"),
    (lambda path: write_text(path, "metrics.jsonl", '{"rollout":0'), "no rollout yet"),
    (lambda path: write_text(path, "metrics.jsonl", "[1]\n"), "line 1 is no rollout"),
    (lambda path: write_text(path, "metrics.jsonl", '{"rollout":0}\nhalf\n'), "line 2 is no rollout"),
    (lambda path: (folder(path, [row("a")]), write_text(path.parent / "report", "__init__.py", "")), "source code"),
])
def test_bad_folder_is_one_clear_line(tmp_path, prepare, message, capsys):
    prepare(tmp_path / "run")
    assert main([str(tmp_path / "run"), "--output", str(tmp_path / "report")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1


# --- questions ------------------------------------------------------------------------------------------------------


def test_a_row_has_the_answers_of_every_run_of_the_same_data(tmp_path):
    runs = read_results([
        folder(tmp_path / "a", [row("q1"), row("q1", 0.0, sample=1), row("q2")], samples=2),
        folder(tmp_path / "b", [row("q1", 0.0, failure="timeout")]),
        folder(tmp_path / "other", [row("q1")], data="other"),
    ])
    answers = answers_of(runs)
    given = [(row["id"], {run: [each["score"] for each in found] for run, found in row["answers"].items()})
             for row in json.loads(questions_json(answers, runs, {}))["rows"]]
    assert given == [("q1", {"0": [100.0, 0.0], "1": [0.0]}), ("q2", {"0": [100.0]}), ("q1", {"2": [100.0]})]
    fields = ("question_id", "run", "sample", "percent", "failure")
    lines = csv.DictReader(io.StringIO(questions_csv(answers)))
    assert [tuple(line[name] for name in fields) for line in lines] == [
        ("q1", "a", "0", "100.0", ""), ("q1", "a", "1", "0.0", ""), ("q1", "b", "0", "0.0", "timeout"),
        ("q2", "a", "0", "100.0", ""), ("q1", "other", "0", "100.0", ""),
    ]


def test_texts_in_the_csv_are_as_they_were_answered(tmp_path):
    texts = ["=1+1", "+49 30", "-5", "@home", 'a "b", c\n', "x"]
    run = folder(tmp_path / "run", [row(str(at), pred=text, input=text) for at, text in enumerate(texts)])
    read = pd.read_csv(io.StringIO(questions_csv(answers_of(read_results([run])))), dtype=str)
    assert list(read["prediction"]) == texts == list(read["question"])


def test_pages_of_trajectories_are_written_beside_the_report(tmp_path, capsys):
    rollouts = "".join(f'{{"rollout":{number},"reward":0.5}}\n' for number in range(2))
    run, bare = tmp_path / "my <run>", tmp_path / "bare"
    write_text(run, "metrics.jsonl", rollouts)
    write_text(bare, "metrics.jsonl", rollouts)
    write(run, "rollout_000001", [Trace(id="1", rollout=1)])
    assert main([str(run), "--viewer", "--output", str(tmp_path / "r2")]) == 0
    assert [path.name for path in (tmp_path / "r2").glob("view*")] == ["view_my-run.html"]
    page = (tmp_path / "r2" / "index.html").read_text()
    assert '<a href="view_my-run.html">Trajectories of <bdi>my &lt;run&gt;</bdi></a>' in page
    told = capsys.readouterr().out
    assert "mean reward" in told and "nothing was evaluated" in told and 'id="questions"' not in page
    assert main([str(bare), "--viewer"]) == 1
    assert "KEEP_TRAJECTORIES" in capsys.readouterr().err


# --- headlines ------------------------------------------------------------------------------------------------------


def evaluated(tmp_path, **scores):
    """One folder for each name, with these scores of questions 0, 1, 2 ..."""
    return read_results([folder(tmp_path / name, [row(str(q), score) for q, score in enumerate(each)])
                         for name, each in scores.items()])


@pytest.mark.parametrize(("first", "second", "number", "reading", "said"), [
    (0.0, [1.0] * 40, "+100.0", "better", "after is better than before: 0.0% to 100.0% in sub_em, +100.0 points"),
    (0.0, [0.0] * 40, "+0.0", "", "after and before: no clear difference: 0.0% to 0.0% in sub_em"),
    (0.0, [1.0] + [0.0] * 39, "+2.5", "", "p = 1.0000 (lowest possible); 40 questions."),
    (1.0, [0.0] * 40, "-100.0", "worse", "p < 0.0001 (10,000 resamples)"),
])
def test_a_difference_is_read_off_its_interval(tmp_path, first, second, number, reading, said):
    (line,) = headlines(evaluated(tmp_path, before=[first] * 40, after=second), [])
    assert (line.number, line.reading) == (number, reading) and said in line.sentence


def test_one_evaluation_is_said_with_its_interval_and_other_data_are_not_compared(tmp_path):
    (line,) = headlines(evaluated(tmp_path, only=[1.0] * 30 + [0.0] * 10), [])
    assert line.number == "75.0%" and "only: sub_em 75.0% with a 95% interval of " in line.sentence
    folders = [folder(tmp_path / data, [row("a")], data=data) for data in ("x", "y")]
    (line,) = headlines(read_results(folders), [])
    assert line.number == "–" and "y and x have no answers to the same data" in line.sentence


# --- training runs --------------------------------------------------------------------------------------------------


def test_rollouts_stand_where_they_are_done_and_half_a_line_is_none(tmp_path):
    first, second = '{"rollout":0,"reward":0.1,"loss":null,"kl":1e308}', '{"rollout":1,"reward":0.3}'
    lines = (first, second.replace("0.3", "0.2"), second, second[:-9])
    write_text(tmp_path / "run", "metrics.jsonl", "\n".join(lines))
    (run,) = read_training_runs([tmp_path / "run"])
    assert run.label == "run" and run.numbers("reward").to_dict() == {1: 0.1, 2: 0.3}
    assert run.numbers("loss").isna().to_dict() == run.numbers("kl").isna().to_dict() == {1: True}
    assert run.first_and_last("reward") == (0.1, 0.3, 1) and run.first_and_last("loss") is None


def test_evaluations_belong_to_the_run_of_their_model(tmp_path):
    run = write_training_run(tmp_path / "run", rollouts=60, evaluated_every=20)
    for name in ("after-iter_0000059", "before", "during-iter_0000059", "iter_0000009", "during-iter_0000019.1"):
        write_run(run / "eval" / name, lengths=("50",), questions=4, skill=2, model="/models/iter_0000007")
    write_text(run / "eval" / "not-begun", "run.json", "{}")
    compared, between = evaluations_of(run)
    assert [path.name for path in compared] == ["before", "iter_0000009", "after-iter_0000059"]
    assert [path.name for path in between] == ["during-iter_0000059"]
    elsewhere = write_run(tmp_path / "r40", lengths=("200",), questions=4, model=str(run / "hf" / "iter_0000039"))
    other = write_run(tmp_path / "other", lengths=("200",), questions=4, model="/models/iter_0000007")
    found = [(each, summaries_of([each])) for each in read_results([*compared, elsewhere, other])]
    points = points_of(*read_training_runs([run]), found)
    assert [(p.length, p.rollouts, p.metric, p.score.n > 0) for p in points] == [
        ("50", 0, "sub_em", True), ("50", 10, "sub_em", True), ("50", 20, "sub_em", False),
        ("50", 40, "sub_em", False), ("50", 60, "sub_em", True), ("200", 40, "sub_em", True)]
    assert points[2].score.mean == pytest.approx(100 * (0.4 + 0.4 / 3)) and points[4].score.mean == 100.0


# --- plots ----------------------------------------------------------------------------------------------------------


def frame(runs, lengths):
    """Runs of equal accuracy at each length."""
    lines = [("run", f"$\\frac{{x {run}", "", "qa", length, "x", "score", "sub_em", 40.0 + at, 30.0, 50.0, 9)
             for run in range(runs) for at, length in enumerate(lengths)]
    return pd.DataFrame(lines, columns=COLUMNS)


@pytest.mark.parametrize(("count", "lengths"), [(1, ["50"]), (12, ["50", "100"]), (2, [f"l{n}" for n in range(40)])])
def test_any_number_of_runs_and_lengths_has_a_drawing(count, lengths):
    (drawn,) = plots.evaluation_plots(frame(count, lengths), {})
    assert drawn.svg.startswith(b"<?xml") and b"<!--" not in drawn.svg
    if count == 1:
        assert [drawn] == plots.evaluation_plots(frame(count, lengths), {}), "the same numbers give the same bytes"


def test_a_mean_is_over_the_rollouts_around_it_without_gaps():
    assert plots.plot("x", "", "", []) == [] == plots.training_plots([], [])
    values = [None if n % 7 == 3 else float(n * n) for n in range(200)]
    run = TrainingRun("run", Path("run"), pd.DataFrame({"kl": values}, index=range(1, 201)).fillna(np.inf))
    (updates,) = plots.training_plots([run], [[]])
    assert updates.caption == ("Thin: each rollout; thick: the mean of 11 around it. "
                               "Gaps in KL to the reference: values that are no numbers, or beyond 1e+30.")
    axis = Figure().subplots()
    plots._smoothed(axis, run, 0, "kl", 1.0)
    for at, (value, mean) in enumerate(zip(values, axis.lines[1].get_ydata(), strict=True)):
        near = [v for v in values[max(0, at - 5) : at + 6] if v is not None]
        assert isnan(mean) if value is None else mean == pytest.approx(fmean(near))


# --- the sifter -----------------------------------------------------------------------------------------------------


def test_a_folder_of_stages_is_a_report(tmp_path, capsys):
    root = small_results(tmp_path / "results")
    scores = sifter_scores(root)
    write_scores(root / FILE, scores)
    assert main([str(root)]) == 0
    told, page = capsys.readouterr().out, (tmp_path / "report" / "index.html").read_text()
    for text in (told, page):
        assert "ranker" in text and "83.3" in text and "NDCG@10" in text
    assert "by type of question" in page and "by type of question" not in told
    assert "rows are missing" in told and 'id="sifter"' in page and 'id="standing"' not in page
    assert {path.name for path in (tmp_path / "report").iterdir()} == {"index.html", "report.md", "sifter.png"}
    titles = [table.title for table in sifter_tables([("first", scores), ("second", scores)])]
    assert "Sessions found, first" in titles and "Sessions found, second" in titles and len(titles) == 10
    assert sifter_plot([("x", SifterScores())]) == [] == sifter_tables([("x", SifterScores())])
