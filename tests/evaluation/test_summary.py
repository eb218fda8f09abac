"""Result folders and what is said of them: rows, means and intervals, tables, comparisons, RULER's averages."""

import json
from dataclasses import replace

import orjson
import pytest

from mem_agent import eval_ruler_hqa as ev
from mem_agent.evaluation.questions import EvalError
from mem_agent.evaluation.results import lock_results, read_results, read_rows, read_run, write_row
from mem_agent.evaluation.statistics import Estimate, interval
from mem_agent.evaluation.summary import average, main_metric, overall, ruler_lines
from mem_agent.evaluation.tables import comparison, failures, summaries_of, tables
from mem_agent.report.viewer.groups import Sibling
from mem_agent.rewards.qa_metrics import MEMAGENT_TASKS, TASKS
from mem_agent.tests.helpers.fake_results import plain_row, write_folder, write_rows
from mem_agent.tests.helpers.traces import group_of


def bare_row(question, **more):
    """Without the scores of questions and answers."""
    return {k: v for k, v in plain_row(question).items() if k not in ("em", "f1", "sub_em", "sub_em_legacy")} | more


def write_files(folder, rows, data="same"):
    """Files of rows by name."""
    folder.mkdir(parents=True)
    run = {"model": "m", "mode": "recurrent", "settings": {}, "samples": 1, "data": dict.fromkeys(rows, data),
           "questions": {name: len(each) for name, each in rows.items()}, "model_name": "/runs/mine/hf/iter_0000099"}
    (folder / "run.json").write_bytes(orjson.dumps(run))
    for name, each in rows.items():
        write_rows(folder, name, each)
    return folder


# --- rows on disk ---------------------------------------------------------------------------------------------------


def test_what_is_written_is_what_was_read(tmp_path):
    line = plain_row("a", 0.5, 1, "timeout") | {"memories": [{"tokens": 7, "gold": None}, {"tokens": 9, "gold": True}],
                                                "headline": "own", "scores": {"own": 0.25}}
    (row,) = read_rows(write_folder(tmp_path / "r", [line]), "50")
    with lock_results(tmp_path / "again"):
        write_row(tmp_path / "again", row)
    assert json.loads((tmp_path / "again" / "50.jsonl").read_bytes()) == line
    assert (row.question, row.text, row.scores["em"], row.scores["own"]) == ("a", "Who?", 0.5, 0.25)


def test_the_newest_row_counts_half_a_line_is_none_and_a_damaged_one_is_named(tmp_path):
    folder = write_folder(tmp_path / "r", [plain_row("a", 0.0, failure="timeout"), plain_row("b"), plain_row("a")])
    path = folder / "50.jsonl"
    before = path.read_bytes()
    path.write_bytes(before + b'{"_id": "b", "em')
    assert [(row.question, row.scores["em"]) for row in read_rows(folder, "50")] == [("a", 1.0), ("b", 1.0)]
    assert path.read_bytes() != before, "reading changes nothing"
    with lock_results(folder):
        assert path.read_bytes() == before
    with pytest.raises(EvalError, match=r"50\.jsonl: line 2"):
        read_rows(write_folder(tmp_path / "damaged", [plain_row("a"), {"_id": "b"}]), "50")


def test_a_folder_is_read_once_with_its_lengths_by_size_within_their_task(tmp_path):
    names = ("800", "50", "vt_16384", "vt_8192", "100")
    folder = write_files(tmp_path / "r", {name: [plain_row("a")] for name in names})
    (run,) = read_results([folder, folder])
    assert run.label == "r" and read_run(folder).checkpoint == 99
    assert [cell.name for cell in run.cells] == ["50", "100", "800", "vt_8192", "vt_16384"]
    with pytest.raises(EvalError, match="no rows yet"):
        read_results([write_folder(tmp_path / "empty", [])])


# --- numbers --------------------------------------------------------------------------------------------------------


def test_means_are_over_all_rows_and_intervals_over_questions(tmp_path):
    rows = [plain_row("a", 1.0), plain_row("a", 0.0, 1), plain_row("b", 1.0), plain_row("b", 1.0, 1),
            plain_row("c", 0.0, failure="timeout")]
    line = tables([write_folder(tmp_path / "r", rows, questions=4, samples=2)]).splitlines()[2]
    # (0.5 + 1 + 0) / 3
    assert line.startswith("| r | 50 | 5 | 1 | 3 | 0.0% | 50.0 | 0.0 to ") and "| 50.0 | 50.0 | 50.0 |" in line
    # of q a: best of two draws from 0 and 1 is 1 in 3 of 4 cases; (0.75 + 1 + 0) / 3
    assert line.endswith("| 58.3 (k=2) |")


def test_pass_at_k_goes_as_far_as_every_question_has_answers(tmp_path):
    """Of 4 answers to question a 1 is right, of those to b none, one of which failed."""
    rows = [plain_row("a", float(sample == 2), sample) for sample in range(4)]
    rows += [plain_row("b", 0.0, sample, failure="Timeout" if sample else None) for sample in range(4)]
    folder = write_folder(tmp_path / "run", rows, samples=4)
    (summary,) = summaries_of([folder])
    assert {k: (e.mean, e.n) for k, e in summary.passes.items()} == {1: (12.5, 2), 2: (25.0, 2), 4: (50.0, 2)}
    accuracy, _, passes = tables([folder]).split("\n\n")
    assert accuracy.splitlines()[2].endswith("| 50.0 (k=4) | 34.2 (k=4) |")  # (1 - (3/4)^4) / 2
    assert passes.splitlines()[0] == "| run | length | questions | pass@1 | pass@2 | pass@4 |"
    (three,) = summaries_of([write_folder(tmp_path / "three", rows[:-1], samples=4)])
    assert [*three.passes] == [1, 2, 3]


def test_memory_by_turn_is_pooled_in_doubling_ranges(tmp_path):
    memories = [{"tokens": t, "gold": g} for t, g in ((10, False), (20, False), (30, True), (50, False), (70, None))]
    (summary,) = summaries_of([write_folder(tmp_path / "run", [plain_row("a", memories=memories)])])
    found = [(t.name, t.tokens.mean, t.gold and t.gold.mean) for t in summary.turns]
    assert found == [("turn_1", 10, 0), ("turn_2", 20, 0), ("turn_3-4", 40, 50), ("turn_5-8", 70, None)]


def test_a_task_is_judged_by_its_headline_and_what_else_it_measures_has_a_table(tmp_path):
    """GSM8K's rows hold ``strict`` first and are judged by ``medium``."""
    rows = [bare_row(name, headline="medium", scores={"strict": strict, "medium": 0.0})
            for name, strict in (("a", 1.0), ("b", 0.0))]
    folder = write_folder(tmp_path / "run", rows, "gsm8k")
    (summary,) = summaries_of([folder])
    assert main_metric(summary.scores) == "medium"
    accuracy, own, _ = tables([folder]).split("\n\n")
    assert "| run | gsm8k | 2 | 0 | 0 | 0.0% | 0.0 | 0.0 to " in accuracy
    assert own.splitlines()[0] == "| run | length | medium | strict |" and own.endswith("| 50.0 (0.0 to 100.0) |")
    trace = replace(group_of()[1], scores={"medium": 1.0, "strict": 0.0}, accuracy=None)
    assert Sibling(trace, None).worth == 1.0, "as ``KeptTrajectories`` writes them"


def test_what_the_agents_did_is_over_questions_that_did_not_fail(tmp_path):
    def read(question, sample=0, failure=None, **counts):
        return plain_row(question, 1.0, sample, failure, counts={"updates": 9, "prompt_tokens": 9} | counts)

    revisit = [read("a", updates=1), read("a", 1, updates=2), read("b", updates=3), read("c", failure="timeout")]
    outputs = [write_folder(tmp_path / "re", revisit), write_folder(tmp_path / "mem", [plain_row("a")])]
    did = tables(outputs).split("\n\n")[1].splitlines()
    # (1 + 2) / 2 of one question and 3 of the other
    assert did[0] == "| run | length | updates | turns |"
    assert did[2:] == ["| re | 50 | 2.25 | - |", "| mem | 50 | - | 3.00 |"]


def test_what_is_missing_or_was_not_read_is_in_the_table_and_failures_are_listed(tmp_path, capsys):
    cut = {"turns": 3, "document_tokens": 8000, "dropped_tokens": 2000}
    rows = [plain_row("a", counts=cut), plain_row("b"), plain_row("c", 0.0, 1, "timeout")]
    folder = write_folder(tmp_path / "half", rows, questions=4)
    assert ev.main(["--table", str(folder)]) == 0
    assert "| half | 50 | 3 | 1 | 1 | 12.5% | 66.7 |" in capsys.readouterr().out
    assert failures(folder, ["50"]) == ["50/c#1: timeout: timeout"]


# --- several files, two runs ----------------------------------------------------------------------------------------


def test_a_questions_lengths_are_averaged_before_anything_is_drawn(tmp_path):
    scores = {"50": {"q1": 1.0, "q2": 1.0}, "200": {"q1": 0.0, "q2": 1.0}}
    rows = {name: [plain_row(*one, length=name) for one in each.items()] for name, each in scores.items()}
    (run,) = read_results([write_files(tmp_path / "r", rows)])
    (found,) = overall(run.cells)
    assert (found.metric, found.cells) == ("sub_em", ("50", "200"))
    assert found.found == interval([50.0, 100.0], full=100.0) and found.found.n == 2


def test_a_comparison_is_paired_and_says_what_was_left_out(tmp_path, capsys):
    first = [plain_row(q, s) for q, s in (("1", 0.0), ("2", 0.0), ("3", 1.0), ("only a", 1.0))]
    second = [plain_row(q, s) for q, s in (("1", 1.0), ("2", 1.0), ("3", 1.0))]
    folders = [write_folder(tmp_path / "a", first), write_folder(tmp_path / "b", second)]
    assert ev.main(["--compare", *map(str, folders)]) == 0
    header, _, line = capsys.readouterr().out.splitlines()
    assert header == "| length | questions | left out | a | b | difference | 95% interval | p |"
    # Differences 1 1 0: two of four sign patterns are as far, p = 0.5.
    assert line.startswith("| 50 | 3 | 1 | 33.3 | 100.0 | +66.7 | ") and line.endswith(" | 0.5000 (lowest possible) |")


@pytest.mark.parametrize("other", [{"data": "b"}, {"stem": "100"}, {"rows": [plain_row("2")]}], ids=str)
def test_runs_of_other_data_are_not_compared(other, tmp_path):
    first = write_folder(tmp_path / "a", [plain_row("1")], data="a")
    second = write_folder(tmp_path / "b", **{"rows": [plain_row("1")], "data": "a"} | other)
    with pytest.raises(EvalError, match=str(second)):
        comparison(first, second)


# --- RULER ----------------------------------------------------------------------------------------------------------


def write_ruler(folder, right):
    """Ten questions of each task, of which so many are right; of qa_1's half of those by first gold."""
    files = {}
    for task, most in right.items():
        name = f"{task}_8192"
        files[name] = [bare_row(str(n), length=name, task=task, headline="ruler", ruler=float(n < most),
                                scores={"sub_em_first_gold": float(2 * n < most)} if task == "qa_1" else {})
                       for n in range(10)]
    return write_files(folder, files)


ALL = {task: number % 10 for number, task in enumerate(TASKS)}  # 0 1 2 3 4 5 6 7 | 8 vt, 9 cwe, 0 fwe, 1 qa_1, 2 qa_2


def test_an_average_s_interval_joins_those_of_its_tasks():
    # 95 - sqrt(10² + 3²) / 2 = 95 - 5.22; 95 + sqrt(6² + 0²) / 2 = 98
    found = average([Estimate(90.0, 80.0, 96.0, 5), Estimate(100.0, 97.0, 100.0, 7)])
    assert (found.mean, found.low, found.high, found.n) == (95.0, pytest.approx(89.78, abs=0.01), 98.0, 12)


def test_the_ten_and_the_thirteen_are_averaged_where_all_are_there(tmp_path):
    folder = write_ruler(tmp_path / "r", ALL | {"qa_1": 4})
    (line,) = ruler_lines(summaries_of([folder]))
    assert tuple(line.tasks) == TASKS and line.ten.n == 100 and line.first_gold.mean == 20.0
    header, _, text = tables([folder]).split("\n\n")[2].splitlines()
    names, cells = ([cell.strip() for cell in each.strip("|").split("|")] for each in (header, text))
    found = dict(zip(names, cells, strict=True))
    assert (found["vt"], found["MemAgent's ten"], found["RULER's thirteen"]) == ("80.0", "36.0", "39.2")
    nine = write_ruler(tmp_path / "nine", dict.fromkeys(MEMAGENT_TASKS[1:], 5))
    assert tables([nine]).split("\n\n")[2].endswith(" | - | - | - | - | - |")
    assert len(tables([write_ruler(tmp_path / "one", {"vt": 5})]).split("\n\n")) == 2
