"""`mem-agent bench`: the table, a benchmark that fails, and that each measures what it says, on small inputs."""

import subprocess
import sys
from types import SimpleNamespace

import orjson
import pytest

from mem_agent.benchmarks import __main__ as command
from mem_agent.benchmarks import converter, outcome, sifter
from mem_agent.benchmarks.outcome import Outcome, cpu_ratios, table
from mem_agent.benchmarks.rollout import ideal_prefill
from mem_agent.benchmarks.trainer import FIRST, LAST, group_rows, pocket_rows
from mem_agent.config import Config
from mem_agent.custom_convert import custom_convert
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


def test_alternatives_take_turns_and_a_ratio_is_of_its_own_round(monkeypatch):
    seconds, called = iter((8.0, 1.0, 9.0, 1.2)), []
    monkeypatch.setattr(outcome, "seconds", lambda call, clock: (call(), next(seconds))[1])
    assert cpu_ratios(lambda: called.append("A"), lambda: called.append("B"), 2) == pytest.approx((8.0, 7.5))
    assert called == ["A", "B", "A", "B"]


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


def test_rows_of_the_trainer_are_groups_that_share_a_prompt():
    rows = group_rows(8, 4096)
    assert {len(row.tokens) for row in rows} == {112 + 640 + 128 + 20 + 128}
    assert [len({tuple(row.tokens[a:b]) for row in rows}) for a, b in ((0, 752), (752, 880))] == [1, 8]
    assert all(len(pocket_rows(rollout)) == 256 for rollout in (FIRST, LAST))


def test_the_converters_trajectories_share_their_prompts():
    given = converter.samples(17)
    data = custom_convert(SimpleNamespace(mem_agent=Config()), given)
    assert len(data["tokens"]) == 17 * 8 and {len(tokens) for tokens in data["tokens"]} == {6_000}
    first, second = (given[i].train_metadata["turns"][0]["tokens"] for i in (0, 1))
    assert all(a is b for a, b in zip(first[:5_000], second[:5_000], strict=True)) and first[5_000:] != second[5_000:]


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
