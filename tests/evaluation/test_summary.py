"""What rows say: means over all rows, intervals over questions, costs of what did not fail, memory by turn; a whole
evaluation in one number; RULER's averages."""

import json
from dataclasses import replace

import pytest

from mem_agent.evaluation.results import Run, read_results, write_run
from mem_agent.evaluation.statistics import Estimate, interval
from mem_agent.evaluation.summary import (
    average,
    differences,
    main_metric,
    overall,
    ruler_lines,
    summarise,
)
from mem_agent.evaluation.tables import tables
from mem_agent.report.viewer.groups import Sibling
from mem_agent.rewards.qa_metrics import MEMAGENT_TASKS, TASKS
from mem_agent.tests.helpers.evaluations import summary_of
from mem_agent.tests.helpers.fake_results import plain_row, write_folder, write_rows
from mem_agent.tests.helpers.traces import group_of

COMMON = ("em", "f1", "sub_em", "sub_em_legacy")


def summaries_of(*folders):
    return [summarise(run.label, cell) for run in read_results(folders) for cell in run.cells]


def without_common(row):
    return {name: value for name, value in row.items() if name not in COMMON}


def test_pass_at_k_goes_as_far_as_every_question_has_answers(tmp_path):
    """Of 4 answers to question a 1 is right, of those to b none, one of which failed."""
    rows = [plain_row("a", float(sample == 2), sample) for sample in range(4)]
    rows += [plain_row("b", 0.0, sample, failure="Timeout" if sample else None) for sample in range(4)]
    (summary,) = summaries_of(write_folder(tmp_path / "run", rows, samples=4))
    assert {k: (e.mean, e.n) for k, e in summary.passes.items()} == {1: (12.5, 2), 2: (25.0, 2), 4: (50.0, 2)}
    assert summary.passes[1] == summary.scores["sub_em"]
    (three,) = summaries_of(write_folder(tmp_path / "three", rows[:-1], samples=4))
    assert [*three.passes] == [1, 2, 3]
    (once,) = summaries_of(write_folder(tmp_path / "once", [plain_row("a")]))
    assert once.passes == {} and once.best is None


def test_memory_by_turn_is_pooled_in_doubling_ranges(tmp_path):
    memories = [{"tokens": t, "gold": g} for t, g in ((10, False), (20, False), (30, True), (50, False), (70, None))]
    (summary,) = summaries_of(write_folder(tmp_path / "run", [plain_row("a", memories=memories)]))
    found = [(t.name, t.tokens.mean, t.gold and t.gold.mean) for t in summary.turns]
    assert found == [("turn_1", 10, 0), ("turn_2", 20, 0), ("turn_3-4", 40, 50), ("turn_5-8", 70, None)]


def test_a_task_is_judged_by_its_headline_in_tables_and_in_the_viewer(tmp_path):
    """GSM8K's rows hold ``strict`` first and are judged by ``medium``."""
    row = without_common(plain_row("a")) | {"headline": "medium", "scores": {"strict": 0.0, "medium": 1.0}}
    (summary,) = summaries_of(write_folder(tmp_path / "run", [row], "gsm8k"))
    assert main_metric(summary.scores) == "medium" and summary.scores["medium"].mean == 100.0
    trace = replace(group_of()[1], scores={"medium": 1.0, "strict": 0.0}, accuracy=None)
    assert Sibling(trace, None).worth == 1.0, "as ``KeptTrajectories`` writes them"


def test_only_runs_of_the_same_data_are_subtracted(tmp_path):
    first = write_folder(tmp_path / "first", [plain_row("a"), plain_row("b", 0.0), plain_row("only here")])
    same = write_folder(tmp_path / "same", [plain_row("a"), plain_row("b")])
    other = write_folder(tmp_path / "other", [plain_row("a"), plain_row("b")], data="different")
    ((label, found),) = differences(read_results([first, same, other]))
    assert (label, found.metric, found.left_out) == ("same", "sub_em", 1)
    assert found.found.difference.mean == pytest.approx(50.0)


# --- over all lengths -----------------------------------------------------------------------------------------------


def evaluated(folder, scores):
    """``scores`` by file, and in it by question."""
    folder.mkdir()
    write_run(folder, Run(model="m", mode="recurrent", settings={}, samples=1, data={n: f"d{n}" for n in scores},
                          questions={name: len(each) for name, each in scores.items()}))
    for name, each in scores.items():
        write_rows(folder, name, [plain_row(q, s, length=name) for q, s in each.items()])
    return folder


def test_a_questions_lengths_are_averaged_before_anything_is_drawn(tmp_path):
    scores = {"50": {"q1": 1.0, "q2": 1.0}, "200": {"q1": 0.0, "q2": 1.0}}
    (run,) = read_results([evaluated(tmp_path / "r", scores)])
    (found,) = overall(run.cells)
    assert (found.metric, found.cells) == ("sub_em", ("50", "200"))
    assert found.found == interval([50.0, 100.0], full=100.0) and found.found.n == 2


# --- RULER ----------------------------------------------------------------------------------------------------------


def write_ruler(folder, right, length="8192", questions=10):
    """A run of the tasks of ``right``, of whose questions so many are right; of qa_1's half of those by first gold."""
    folder.mkdir(parents=True)
    names = {task: f"{task}_{length}" for task in right}
    run = {"model": "m", "mode": "recurrent", "settings": {}, "samples": 1,
           "data": dict.fromkeys(names.values(), "d"), "questions": dict.fromkeys(names.values(), questions)}
    (folder / "run.json").write_text(json.dumps(run))
    for task, name in names.items():
        rows = []
        for number in range(questions):
            row = without_common(plain_row(str(number), length=name, task=task, headline="ruler"))
            first = {"scores": {"sub_em_first_gold": float(2 * number < right[task])}} if task == "qa_1" else {}
            rows.append(row | {"ruler": float(number < right[task])} | first)
        write_rows(folder, name, rows)
    return folder


ALL = {task: number % 10 for number, task in enumerate(TASKS)}  # 0 1 2 3 4 5 6 7 | 8 vt, 9 cwe, 0 fwe, 1 qa_1, 2 qa_2


def test_an_average_s_interval_joins_those_of_its_tasks():
    # 95 - sqrt(10² + 3²) / 2 = 95 - 5.22; 95 + sqrt(6² + 0²) / 2 = 98
    found = average([Estimate(90.0, 80.0, 96.0, 5), Estimate(100.0, 97.0, 100.0, 7)])
    assert (found.mean, found.low, found.high, found.n) == (95.0, pytest.approx(89.78, abs=0.01), 98.0, 12)


def test_the_ten_and_the_thirteen_are_averaged_where_all_are_there(tmp_path):
    folder = write_ruler(tmp_path / "r", ALL | {"qa_1": 4})
    (line,) = ruler_lines([summary_of(folder, f"{task}_8192") for task in reversed(TASKS)])
    assert tuple(line.tasks) == TASKS and line.ten.n == 100 and line.first_gold.mean == 20.0
    header, _, text = tables([folder]).split("\n\n")[2].splitlines()
    names, cells = ([cell.strip() for cell in each.strip("|").split("|")] for each in (header, text))
    found = dict(zip(names, cells, strict=True))
    assert (found["vt"], found["MemAgent's ten"], found["RULER's thirteen"]) == ("80.0", "36.0", "39.2")
    nine = write_ruler(tmp_path / "nine", dict.fromkeys(MEMAGENT_TASKS[1:], 5))
    assert tables([nine]).split("\n\n")[2].endswith(" | - | - | - | - | - |")
    assert len(tables([write_ruler(tmp_path / "one", {"vt": 5})]).split("\n\n")) == 2
