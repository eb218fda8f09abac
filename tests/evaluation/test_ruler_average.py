"""RULER's tasks side by side: what is averaged, when, and with which interval."""

import json

import pytest

from mem_agent.evaluation.ruler_average import average, ruler_lines
from mem_agent.evaluation.statistics import Estimate
from mem_agent.evaluation.tables import tables
from mem_agent.report.__main__ import main as report
from mem_agent.rewards.ruler import MEMAGENT_TASKS, TASKS
from mem_agent.tests.helpers.evaluations import summary_of
from mem_agent.tests.helpers.fake_results import plain_row, write_rows

QUESTIONS = 10


def write_ruler(folder, right, length="8192"):
    """A run of the tasks of ``right``, of whose questions so many are right; of qa_1's half of those by first gold."""
    folder.mkdir(parents=True)
    names = {task: f"{task}_{length}" for task in right}
    run = {"model": "m", "mode": "recurrent", "settings": {}, "samples": 1,
           "data": dict.fromkeys(names.values(), "d"), "questions": dict.fromkeys(names.values(), QUESTIONS)}
    (folder / "run.json").write_text(json.dumps(run))
    for task, name in names.items():
        rows = []
        for number in range(QUESTIONS):
            row = plain_row(str(number), length=name, task=task, headline="ruler")
            row = {k: v for k, v in row.items() if k not in ("em", "f1", "sub_em", "sub_em_legacy")}
            first = {"scores": {"sub_em_first_gold": float(2 * number < right[task])}} if task == "qa_1" else {}
            rows.append(row | {"ruler": float(number < right[task])} | first)
        write_rows(folder, name, rows)
    return folder


ALL = {task: number % 10 for number, task in enumerate(TASKS)}  # 0 1 2 3 4 5 6 7 | 8 vt, 9 cwe, 0 fwe, 1 qa_1, 2 qa_2


def test_an_average_s_interval_joins_those_of_its_tasks():
    # 95 - sqrt(10² + 3²) / 2 = 95 - 5.22; 95 + sqrt(6² + 0²) / 2 = 98
    found = average([Estimate(90.0, 80.0, 96.0, 5), Estimate(100.0, 97.0, 100.0, 7)])
    assert (found.mean, found.low, found.high, found.n) == (95.0, pytest.approx(89.78, abs=0.01), 98.0, 12)


def test_the_ten_and_the_thirteen_are_averaged(tmp_path):
    folder = write_ruler(tmp_path / "r", ALL)
    (line,) = ruler_lines([summary_of(folder, f"{task}_8192") for task in reversed(TASKS)])
    assert tuple(line.tasks) == TASKS
    assert line.ten.mean == pytest.approx(10 * sum(ALL[task] for task in MEMAGENT_TASKS) / 10) == 36.0
    assert line.thirteen.mean == pytest.approx(10 * sum(ALL.values()) / 13)
    assert line.first_gold.mean == 10.0 and line.tasks["qa_1"].mean == 10.0
    assert line.ten.low < 36.0 < line.ten.high and line.ten.n == 100


def test_the_table_has_a_column_for_each_task_and_average(tmp_path):
    folder = write_ruler(tmp_path / "r", ALL | {"qa_1": 4})
    header, _, line = tables([folder]).split("\n\n")[2].splitlines()
    names = [name.strip() for name in header.strip("|").split("|")]
    cells = dict(zip(names, [cell.strip() for cell in line.strip("|").split("|")], strict=True))
    assert names[:2] == ["run", "length"] and tuple(names[2:15]) == TASKS
    assert (cells["run"], cells["length"], cells["vt"]) == ("r", "8192", "80.0")
    assert (cells["MemAgent's ten"], cells["RULER's thirteen"]) == ("36.0", f"{10 * (48 + 3) / 13:.1f}")
    assert (cells["qa_1"], cells["qa_1, first gold"]) == ("40.0", "20.0")


def test_an_average_of_fewer_tasks_is_none(tmp_path):
    ten = write_ruler(tmp_path / "ten", dict.fromkeys(MEMAGENT_TASKS, 5))
    nine = write_ruler(tmp_path / "nine", dict.fromkeys(MEMAGENT_TASKS[1:], 5))
    _, _, first, second = tables([ten, nine]).split("\n\n")[2].splitlines()
    assert "| 50.0 | " in first and first.endswith(" | - | - | - |")
    assert second.startswith("| nine | 8192 | - | 50.0 | ") and second.endswith(" | - | - | - | - | - |")


def test_one_task_alone_has_no_such_table(tmp_path):
    assert len(tables([write_ruler(tmp_path / "r", {"vt": 5})]).split("\n\n")) == 2


def test_the_report_has_the_average_beside_what_is_published(tmp_path, capsys):
    folder = write_ruler(tmp_path / "r", ALL)
    assert report([str(folder)]) == 0
    written = (tmp_path / "report" / "report.md").read_text()
    table = written.partition("### RULER, average of MemAgent's ten tasks")[2].partition("###")[0]
    assert "| r | 36.0 [" in table and "| MemAgent-7B, RL (v1) (published) | 93.0 |" in table
    assert "| r | 8192 | 0.0 [" in written.partition("### RULER, task by task")[2]
    assert report([str(folder), "--no-published"]) == 0
    assert "published" not in (tmp_path / "report" / "report.md").read_text().partition("average of MemAgent's")[2]
