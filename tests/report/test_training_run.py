"""What a report reads of a training run: its lines, and which evaluations are points of its curves."""

import warnings

import orjson
import pytest

from mem_agent.evaluation.results import read_results
from mem_agent.evaluation.summary import summarise
from mem_agent.report.__main__ import main, make_report
from mem_agent.report.data import evaluations_of, points_of, read_training_runs
from mem_agent.tests.helpers.fake_results import plain_row, write_folder, write_run
from mem_agent.tests.helpers.fake_run import write_training_run


def run_of(folder, text):
    folder.mkdir()
    (folder / "metrics.jsonl").write_text(text)
    return folder


def test_rollouts_stand_where_they_are_done_and_half_a_line_is_none(tmp_path):
    first, second = '{"rollout":0,"reward":0.1,"loss":null}', '{"rollout":1,"reward":0.3}'
    text = "\n".join((first, second.replace("0.3", "0.2"), second, second[:-9]))
    (run,) = read_training_runs([run_of(tmp_path / "run", text)])
    assert run.label == "run"
    assert run.numbers("reward").to_dict() == {1: 0.1, 2: 0.3} and run.numbers("loss").isna().to_dict() == {1: True}
    assert run.first_and_last("reward") == (0.1, 0.3, 1) and run.first_and_last("loss") is None


@pytest.mark.parametrize(("text", "message"), [
    ("", "no rollout yet"), ('{"rollout":0', "no rollout yet"), ("[1]\n", "line 1 is no rollout"),
    ('{"rollout":0}\nhalf\n', "line 2 is no rollout"), ('{"reward":0.5}\n', "line 1 is no rollout"),
])
def test_a_damaged_run_is_one_clear_line(tmp_path, text, message, capsys):
    assert main([str(run_of(tmp_path / "run", text))]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1


def test_evaluations_stand_in_the_order_of_their_checkpoints(tmp_path):
    run = write_training_run(tmp_path / "run")
    for name in ("after-iter_0000059", "before", "during-iter_0000059", "iter_0000009", "during-iter_0000019.1"):
        write_folder(run / "eval" / name, [plain_row("a")])
    (run / "eval" / "not-begun").mkdir()
    (run / "eval" / "not-begun" / "run.json").write_text("{}")
    assert [path.name for path in evaluations_of(run)[0]] == ["before", "iter_0000009", "after-iter_0000059"]
    for name, content in (("during-iter_0000099", b""), ("after-iter_0000099", b'{"_id": "a"')):
        (write_folder(run / "eval" / name, [], questions=3) / "50.jsonl").write_bytes(content)
    assert [path.name for path in evaluations_of(run)[0]] == ["before", "iter_0000009", "after-iter_0000059"]
    unfinished = write_training_run(tmp_path / "unfinished")
    for name in ("before", "during-iter_0000019", "during-iter_0000039"):
        write_folder(unfinished / "eval" / name, [plain_row("a")])
    assert [path.name for path in evaluations_of(unfinished)[0]] == ["before", "during-iter_0000039"]


def test_points_are_placed_by_checkpoint_and_answers_go_before_the_runs_own_line(tmp_path):
    run = write_training_run(tmp_path / "run", rollouts=60, evaluated_every=20)
    write_run(run / "eval" / "before", lengths=("50",), questions=4, skill=2, model="/others/hf/iter_0000007")
    write_run(run / "eval" / "after-iter_0000059", lengths=("50",), questions=4, skill=2)
    elsewhere = write_run(tmp_path / "r40", lengths=("200",), questions=4, skill=2,
                          model=str(run / "hf" / "iter_0000039"))
    other = write_run(tmp_path / "other", lengths=("200",), questions=4, model="/models/iter_0000007")
    found = read_results([*evaluations_of(run)[0], elsewhere, other])
    points = points_of(*read_training_runs([run]),
                       [(each, [summarise(each.label, cell) for cell in each.cells]) for each in found])
    assert [(p.length, p.rollouts, p.metric, p.score.n > 0) for p in points] == [
        ("50", 0, "sub_em", True), ("50", 20, "sub_em", False), ("50", 40, "sub_em", False),
        ("50", 60, "sub_em", True), ("200", 40, "sub_em", True),
    ]
    assert points[1].score.mean == pytest.approx(100 * (0.4 + 0.4 / 3)) and points[3].score.mean == 100.0


def test_evaluations_between_rollouts_are_points_with_intervals_and_are_compared_with_nothing(tmp_path):
    run = write_training_run(tmp_path / "run", rollouts=60, evaluated_every=20)
    for name in ("before", "during-iter_0000019", "during-iter_0000039", "during-iter_0000059", "after-iter_0000059"):
        write_run(run / "eval" / name, lengths=("50",), questions=16, skill=0.5 if name != "after-iter_0000059" else 2)
    unfinished = run / "eval" / "during-iter_0000039" / "50.jsonl"
    unfinished.write_bytes(b"".join(unfinished.read_bytes().splitlines(keepends=True)[:3]))
    make_report([run], tmp_path / "report")
    text = (tmp_path / "report" / "report.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| run | ")]
    scores = {row.split(" | ")[1]: row.split(" | ")[4] for row in rows if " | 50 | " in row}
    assert list(scores) == ["0", "20", "40", "60"]
    assert {at: "[" in score for at, score in scores.items()} == {"0": True, "20": True, "40": False, "60": True}
    assert scores["60"].startswith("100.0")  # of what was answered after it, not within
    assert "during-" not in (tmp_path / "report" / "results.csv").read_text()


def test_an_evaluation_of_a_run_that_is_named_as_well_counts_once(tmp_path):
    run = write_training_run(tmp_path / "run")
    before, _ = (write_run(run / "eval" / name, lengths=("50",), questions=4) for name in ("before", "after"))
    printed = make_report([run, run, before], tmp_path / "report")
    assert [line.split(" | ")[0] for line in printed.splitlines() if " | sub_em | " in line] == ["| before", "| after"]


def test_a_run_without_evaluations_has_curves_and_says_that_nothing_was_evaluated(tmp_path, capsys):
    run = write_training_run(tmp_path / "mine", rollouts=30, evaluated_every=0)
    assert main([str(run)]) == 0
    told = capsys.readouterr().out
    assert "mean reward" in told and "nothing was evaluated" in told
    page = (run / "report" / "index.html").read_text()
    assert 'id="training"' in page and 'id="standing"' not in page and 'id="questions"' not in page
    assert {path.name for path in (run / "report").iterdir()} == {
        "index.html", "report.md", "training.png", "training_signal.png", "training_updates.png"}


@pytest.mark.parametrize("broken,rollouts", [(b"1e308", 3), (b"null", 60)])  # each alone, and smoothed
def test_a_metric_that_is_no_number_is_a_gap_with_a_note(tmp_path, broken, rollouts):
    run = write_training_run(tmp_path / "run", rollouts=rollouts)
    lines = [orjson.loads(line) for line in (run / "metrics.jsonl").read_bytes().splitlines()]
    lines[1] |= {"loss": "broken", "accuracy": "broken"}
    text = b"\n".join(map(orjson.dumps, lines)).replace(b'"broken"', broken) + b"\n"
    (run / "metrics.jsonl").write_bytes(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_report([run], tmp_path / "report")
    page = (tmp_path / "report" / "index.html").read_text()
    assert "Gaps in loss: values that are no numbers, or beyond 1e+30." in page
    assert "Gaps in accuracy" in page
    (read,) = read_training_runs([run])
    first, last, count = read.first_and_last("loss")
    assert count == min(10, (rollouts - 1) // 2) and abs(first) < 1 > abs(last)


def test_two_runs_of_one_rollout_each_are_drawn(tmp_path):
    runs = [write_training_run(tmp_path / name, rollouts=1) for name in ("a", "$\\frac{x$ b")]
    make_report(runs, tmp_path / "report")
    assert (tmp_path / "report" / "training.png").is_file()
