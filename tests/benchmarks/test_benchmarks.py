"""`mem-agent bench`: the table, a benchmark that fails, and that each measures what it says, on small inputs."""

import subprocess
import sys

import orjson
import pytest

from mem_agent.benchmarks import __main__ as command
from mem_agent.benchmarks import sifter
from mem_agent.benchmarks.outcome import Outcome, table
from mem_agent.benchmarks.rollout import ideal_prefill
from mem_agent.tests.helpers.stages_here import without_ray

OUTCOMES = [Outcome("update", (8.1, 7.9, 8.4), target=8), Outcome("memory", (1.6,), "times", 1.5, True, "3 MB"),
            Outcome("all of it", (), "times", 1.05, True, "no engine"), Outcome("stage 1", (300.0,), "s")]


def test_the_table_has_target_median_spread_and_whether_it_is_met():
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table(OUTCOMES).splitlines()]
    assert cells[2:] == [
        ["update", "8.00 times", "8.10 times (7.90 to 8.40)", "yes", ""],
        ["memory", "at most 1.50 times", "1.60 times", "**no**", "3 MB"],
        ["all of it", "at most 1.05 times", "not measured", "", "no engine"],
        ["stage 1", "", "300.00 s", "", ""],
    ]


def test_a_run_prints_its_table_and_writes_what_was_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "run", lambda name, quick: OUTCOMES)
    assert command.main(["trainer", "--output", str(tmp_path / "speed.json")]) == 0
    content = orjson.loads((tmp_path / "speed.json").read_bytes())
    assert content["outcomes"]["trainer"][0]["values"] == [8.1, 7.9, 8.4] and "cores" in content["machine"]
    assert "8.10 times" in capsys.readouterr().out
    assert command.main(["--list"]) == 0 and capsys.readouterr().out.count("\n") == len(command.BENCHMARKS)


def test_a_benchmark_that_fails_is_a_line_that_says_so(monkeypatch):
    monkeypatch.setitem(command.BENCHMARKS, "no_such_module", ("no_such_module:measure", "nothing"))
    (line,) = command.run("no_such_module", quick=True)
    assert line.values == () and "no_such_module" in line.note


@pytest.mark.parametrize("requests,computed", [
    ([("abcd", "")], 4),
    ([("abcd", ""), ("abce", "")], 4 + 2),  # block ab is known
    ([("ab", "cdx"), ("abcde", "")], 2 + 1),  # a reply's blocks, all of whose tokens were fed, are known
    ([("ab", "cd"), ("abcde", "")], 2 + 3),  # d was sampled last and never fed
    ([("abcd", ""), ("xbcd", "")], 4 + 4),  # a block is known behind what came before it, not by itself
])
def test_ideal_prefill(requests, computed):
    assert ideal_prefill(requests, block=2) == computed


def test_the_converter_is_measured():
    """In a process of its own: one that has run other tests holds memory that a small input would not add to."""
    program = ("from mem_agent.benchmarks import converter\n"
               "lines = converter.measure(quick=True, trajectories=64)\n"
               "assert all(line.values for line in lines), lines\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_line_of_the_sifter(monkeypatch):
    without_ray(monkeypatch)
    monkeypatch.setattr(sifter, "A_SECOND", 10_000)
    lines = sifter.measure(quick=True, questions=1_000)
    assert [(line.unit, line.target) for line in lines] == [
        ("MB", 50.0), ("s", None), ("s", None), ("times", 1.3), ("times", 1.3)]
    assert "100 questions about 20 histories: memory above that of 10" in lines[0].what
    assert all(line.values for line in lines)


def test_an_ideal_window_is_full_until_the_last_request_begins():
    assert sifter.ideal([3.0, 1.0, 1.0, 4.0], 2) == 6.0  # 3 | 1 then 1 then 4
    assert sifter.ideal([3.0, 1.0], 5) == 3.0
