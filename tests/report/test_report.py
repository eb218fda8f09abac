"""What a report says of runs and results: one report that most tests read, and the rules behind its numbers."""

import csv
import json
import re
from types import SimpleNamespace

import pytest

from mem_agent.hooks.traces import Trace
from mem_agent.report.data import evaluations_of, read_material, results_csv
from mem_agent.report.page import headlines, main, make_report, warnings
from mem_agent.report.plots import plots_of
from mem_agent.report.tables import half_width, tables_of, verdict
from mem_agent.report.viewer.page import write_viewer
from mem_agent.rewards.qa_metrics import MEMAGENT_TASKS
from mem_agent.tests.helpers.fake_results import plain_row as row
from mem_agent.tests.helpers.fake_results import write_files, write_run
from mem_agent.tests.helpers.fake_results import write_folder as folder
from mem_agent.tests.helpers.fake_run import write_training_run
from mem_agent.tests.helpers.sifter_files import small_results
from mem_agent.tests.helpers.traces import write

HOSTILE = "</script><script>alert(1)</script><!--" * 20
METRIC = "sub_em_legacy"


def math_row(question, medium, **more):
    """GSM8K lists ``strict`` first and is judged by ``medium``."""
    return row(question, scores={"strict": 1 - medium, "medium": medium}, headline="medium", task="gsm8k", **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run with its evaluations, results elsewhere with texts that attack, a task with a metric of its own."""
    root = tmp_path_factory.mktemp("report")
    run = write_training_run(root / "mine", rollouts=60, evaluated_every=20)
    for name, skill in {"before": 0.5, "during-iter_0000019": 0.5, "after-iter_0000059": 2}.items():
        write_run(run / "eval" / name, lengths=("50",), questions=16, skill=skill)
    other = write_run(root / "Each run <b>", lengths=("50", "6400"), questions=4, samples=2, data="other")
    math = folder(root / "math", [math_row("a", 1.0), math_row("<b>", 0.0, pred=HOSTILE, input=HOSTILE)], "gsm8k")
    write(math, "gsm8k", [Trace(id="gsm8k-a-0", length="gsm8k", question_id="a")])
    write_viewer(math, math / "view.html")
    output = root / "a <b>" / "report"
    printed = make_report([run, run, other, math], output)
    files = {path.name: path.read_text() for path in output.iterdir() if path.suffix != ".png"}
    lines = {name: list(csv.DictReader(files[name].splitlines())) for name in ("results.csv", "questions.csv")}
    return SimpleNamespace(printed=printed, text=files["report.md"], page=files["index.html"], lines=lines,
                           names={path.name for path in output.iterdir()})


def test_everything_stands_beside_the_page(made):
    assert made.names == {"index.html", "report.md", "results.csv", "questions.csv", "training.png", "curves.png",
                          "accuracy.png"}
    sections = ["training", "standing", "accuracy", "questions", "cost", "memory", "provenance", "caveats"]
    assert re.findall('<section id="(.*?)">', made.page) == sections and "http" not in made.page.split("<script")[0]
    assert made.printed.startswith("# Training of mine") and "Every metric" not in made.printed
    assert "from before to after-iter_0000059: better" in made.printed and "| mean of lengths |" in made.printed


def test_the_csv_has_every_metric_beside_published_rows_in_theirs(made):
    runs = {line["run"]: line for line in made.lines["results.csv"] if line["kind"] == "run"}
    assert runs["math"]["medium"] == "50.0" and not any("during-" in name for name in runs)
    assert {"sub_em_low", "em", "f1_high", "turns", "pass@2", "best@2", "not_read", "memory_tokens/turn_1"} <= {
        name for name, value in runs["Each run <b>"].items() if value}
    published = [line for line in made.lines["results.csv"] if line["kind"] == "published"]
    assert all(line[METRIC] and line["source"] and not line["sub_em"] and not line["em"] for line in published)
    number = {(line["run"], line["length"]): line[METRIC] for line in published}
    assert number["MemAgent-7B, RL (v2) (published)", "25600"] == "71.88"
    assert number["Qwen2.5-14B-Instruct-1M (published)", "6400"] == "0.0"
    assert made.text.count("MemAgent-7B, RL (v1) (published)") == 5, "three runs beside it, by length, source"


def test_an_answer_is_judged_by_the_metric_of_its_task_and_cannot_leave_the_page(made):
    math = [line for line in made.lines["questions.csv"] if line["run"] == "math"]
    assert {(line["question_id"], line["metric"], line["percent"]) for line in math} == {
        ("a", "medium", "100.0"), ("<b>", "medium", "0.0")}
    assert "| math | m | – | gsm8k | medium | 1 | 50.0 |" in made.printed
    (line,) = [line for line in made.lines["questions.csv"] if line["question_id"] == "<b>"]
    assert line["prediction"] == HOSTILE == line["question"]
    assert "<script>alert" not in made.page and "&lt;b&gt;" in made.page
    data = json.loads(made.page.split('id="question-data">')[1].split("</script>")[0])
    assert [row["text"][:9] for row in data["rows"] if row["id"] == "<b>"] == ["</script>"]
    assert [run["viewer"] for run in data["runs"]] == ["", "", "", "../../math/view.html"]


# --- results --------------------------------------------------------------------------------------------------------


def test_other_data_and_missing_rows_are_said(tmp_path):
    first = write_files(tmp_path / "first", {"50": [row("a"), row("b", score=0.0)], "100": []}, questions=7)
    other = folder(tmp_path / "other", [row("a"), row("b")], data="different")
    material = read_material([first, folder(tmp_path / "same", [row("a"), row("b")]), other])
    found = warnings(material)
    assert any("first, same | other. " in line for line in found)
    assert list(headlines(material))[1].number == "–", "other data are not compared"
    assert "first, multi-document QA, 100: no rows yet." in found
    lines = csv.DictReader(results_csv(material.frame).splitlines())
    assert [line["missing"] for line in lines if line["length"] == "100" and line["kind"] == "run"] == ["7"]


def test_rulers_average_stands_beside_what_is_published_of_it(tmp_path):
    names = {f"{task}_8192": [row("a", headline="ruler", ruler=1.0)] for task in MEMAGENT_TASKS}
    tables = tables_of(read_material([write_files(tmp_path / "r", names)]))
    text = "".join(table.markdown() for found in tables.values() for table in found)
    assert "### RULER: MemAgent's ten by length" in text and "| run | length | niah_single_1 | " in text
    assert "| MemAgent-14B, RL (v1) (published) | 97.5 |" in text


def test_babilongs_average_stands_beside_what_is_published_of_it_in_tables_and_plot(tmp_path):
    names = {f"qa{task}_{length}": [row("a", headline="babilong", scores={"babilong": float(task != 5)})]
             for task in range(1, 6) for length in ("32k", "4k")}
    material = read_material([write_files(tmp_path / "r", names)])
    text = "".join(table.markdown() for found in tables_of(material).values() for table in found)
    assert "### BABILong: qa1-qa5 by length" in text and "| system | 4k | 32k |" in text
    assert "| RMT (137M), fine-tuned (published) | 92.0 | 78.0 |" in text
    (plot,) = plots_of(material)
    assert len(plot.panels) == 6  # five tasks, and their average


def test_standing_is_level_unless_both_intervals_leave_room():
    assert half_width(80.0) == pytest.approx(6.93, abs=0.01)
    assert [verdict(mine, 7.0, 81.25) for mine in (100.0, 0.0, 85.0)] == ["above", "below", "level"]


def write_text(path, name, text):
    path.mkdir(exist_ok=True)
    (path / name).write_text(text)


@pytest.mark.parametrize(("prepare", "named"), [
    (lambda path: path.mkdir(), "run"), (lambda path: folder(path, []), "run"),
    (lambda path: write_text(path, "metrics.jsonl", '{"rollout":0'), "metrics.jsonl"),
])
def test_bad_folder_is_one_clear_line(tmp_path, prepare, named, capsys):
    prepare(tmp_path / "run")
    assert main([str(tmp_path / "run"), "--output", str(tmp_path / "report")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and named in error and error.count("\n") == 1


def test_pages_of_trajectories_are_written_beside_the_report(tmp_path, capsys):
    for name in ("my <run>", "bare"):
        write_text(tmp_path / name, "metrics.jsonl", '{"rollout":0,"reward":0.5}\n{"rollout":1,"reward":0.5}\n')
    run, bare = write(tmp_path / "my <run>", "rollout_000001", [Trace(id="1", rollout=1)]), tmp_path / "bare"
    assert main([str(run), str(bare), "--viewer"]) == 0
    assert [path.name for path in (run / "report").glob("view*")] == ["view_my-run.html"]
    page = (run / "report" / "index.html").read_text()
    assert '<a href="view_my-run.html">Trajectories of <bdi>my &lt;run&gt;</bdi></a>' in page
    told = capsys.readouterr().out
    assert "mean reward" in told and "nothing was evaluated" in told and 'id="questions"' not in page
    assert main([str(bare), "--viewer"]) == 1 and "KEEP_TRAJECTORIES" in capsys.readouterr().err


# --- headlines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scores", "number", "reading", "said"), [
    ({"only": [1.0] * 30 + [0.0] * 10}, "75.0%", "", "sub_em of only, with a 95% interval of "),
    ({"before": [0.0] * 40, "after": [1.0] * 40}, "+100.0", "better", "from before to after: better, 0.0% to 100"),
    ({"before": [0.0] * 40, "after": [1.0] + [0.0] * 39}, "+2.5", "no clear difference", "p 1.0000 (lowest possible)"),
    ({"before": [1.0] * 40, "after": [0.0] * 40}, "-100.0", "worse", "p < 0.0001 (10,000 resamples); 40 questions."),
])
def test_a_difference_is_read_off_its_interval(tmp_path, scores, number, reading, said):
    folders = [folder(tmp_path / name, [row(str(q), score) for q, score in enumerate(each)])
               for name, each in scores.items()]
    (line,) = headlines(read_material(folders))
    assert (line.number, line.reading) == (number, reading) and said in line.sentence


# --- training runs --------------------------------------------------------------------------------------------------


def test_rollouts_stand_where_they_are_done_and_half_a_line_is_none(tmp_path):
    second = '{"rollout":1,"reward":0.3}'
    lines = ('{"rollout":0,"reward":0.1,"loss":null,"kl":1e308}', '{"rollout":1,"reward":0.2}', second, second[:-9])
    write_text(tmp_path / "run", "metrics.jsonl", "\n".join(lines))
    (run,) = read_material([tmp_path / "run"]).trained
    assert run.rollouts["reward"].to_dict() == {1: 0.1, 2: 0.3} and run.first_and_last("reward") == (0.1, 0.3, 1)
    assert run.rollouts[["loss", "kl"]].isna().all(axis=None) and run.first_and_last("loss") is None


def test_evaluations_belong_to_the_run_of_their_model(tmp_path):
    run = write_training_run(tmp_path / "run", rollouts=60, evaluated_every=20)
    for name in ("after-iter_0000059", "before", "during-iter_0000059", "iter_0000009"):
        write_run(run / "eval" / name, lengths=("50",), questions=4, skill=2, model="/models/iter_0000007")
    write_text(run / "eval" / "not-begun", "run.json", "{}")
    compared, between = evaluations_of(run)
    assert [path.name for path in compared] == ["before", "iter_0000009", "after-iter_0000059"]
    assert [path.name for path in between] == ["during-iter_0000059"]
    elsewhere = write_run(tmp_path / "r40", lengths=("200",), questions=4, model=str(run / "hf" / "iter_0000039"))
    other = write_run(tmp_path / "other", lengths=("200",), questions=4, model="/models/iter_0000007")
    points = read_material([run, elsewhere, other]).points
    found = points.assign(answers=points["low"].notna())[["file", "rollouts", "metric", "answers"]]
    assert list(found.itertuples(index=False, name=None)) == [
        ("50", 0, "sub_em", True), ("50", 10, "sub_em", True), ("50", 20, "sub_em", False),
        ("50", 40, "sub_em", False), ("50", 60, "sub_em", True), ("200", 40, "sub_em", True)]
    assert points["mean"][2] == pytest.approx(100 * (0.4 + 0.4 / 3)) and points["mean"][4] == 100.0


# --- the sifter -----------------------------------------------------------------------------------------------------


def test_folders_of_stages_are_a_report(tmp_path, capsys):
    roots = [small_results(tmp_path / name) for name in ("first", "second")]
    assert main([*map(str, roots)]) == 0
    for text in (capsys.readouterr().out, (roots[0] / "report" / "index.html").read_text()):
        for part in ("83.3", "NDCG@10", "rows are missing", "Sessions found, first", "Questions answered, second"):
            assert part in text
    assert {path.name for path in (roots[0] / "report").iterdir()} == {"index.html", "report.md"}
