"""`mem-agent bench`: names, targets, table, JSON; a benchmark that fails is a line."""

from importlib import import_module

import orjson
import pytest

from mem_agent.benchmarks import __main__ as command
from mem_agent.benchmarks import against_trl, suite
from mem_agent.benchmarks.outcome import BenchmarkError, Outcome, from_json, table, to_json
from mem_agent.benchmarks.stopwatch import Sample

FAST = Outcome("trainer", "update", (8.1, 7.9, 8.4), target=8, wall=(7.0,), samples={"rows": [Sample(8.0, 9.0)]})
HEAVY = Outcome("converter", "memory", (1.6,), target=1.5, at_most=True, note="3 MB")
ABSENT = Outcome("prefill", "all of it", note="no engine", target=1.05, at_most=True)
PLAIN = Outcome("sifter", "stage 1", (300.0,), unit="s")


def test_the_table_has_target_ratio_spread_and_reason():
    lines = table([FAST, HEAVY, ABSENT, PLAIN]).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[2:] == [
        ["trainer", "update", "8.00 times", "8.10 times (7.90 to 8.40)", "yes", "by wall 7.00"],
        ["converter", "memory", "at most 1.50 times", "1.60 times", "**no**", "3 MB"],
        ["prefill", "all of it", "at most 1.05 times", "not measured", "not measured", "no engine"],
        ["sifter", "stage 1", "", "300.00 s", "", ""],
    ]


def test_every_benchmark_is_a_module_with_a_measure():
    assert all(callable(import_module(f"mem_agent.benchmarks.{name}").measure) for name in suite.BENCHMARKS)


def test_a_run_prints_its_table_and_writes_every_sample(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "run", lambda names, quick: [FAST, HEAVY])
    assert command.main(["trainer", "converter", "--output", str(tmp_path / "speed.json")]) == 0
    content = orjson.loads((tmp_path / "speed.json").read_bytes())
    assert [from_json(one) for one in content["outcomes"]] == [FAST, HEAVY]
    assert content["names"] == ["trainer", "converter"] and content["machine"]["cpu"]
    assert "8.10 times" in capsys.readouterr().out


def test_outcomes_go_through_json():
    assert [from_json(orjson.loads(orjson.dumps(to_json(o)))) for o in (ABSENT, PLAIN)] == [ABSENT, PLAIN]


def test_an_unknown_name_is_named(capsys):
    assert command.main(["trainr"]) == 1
    assert "trainr" in capsys.readouterr().err


def test_a_benchmark_that_fails_is_a_line_and_the_rest_goes_on(monkeypatch):
    monkeypatch.setitem(suite.BENCHMARKS, "no_such_module", "nothing")
    (line,) = suite.run(["no_such_module"], quick=True)
    assert line.key == "no_such_module: all of it" and line.values == () and "no_such_module" in line.note


def test_without_trl_its_line_says_so(monkeypatch):
    def refuse():
        raise BenchmarkError("TRL's environment cannot be installed")

    monkeypatch.setattr(against_trl, "trl_python", refuse)
    (line,) = against_trl.measure()
    assert line.met is None and line.values == () and "cannot be installed" in line.note


@pytest.mark.parametrize("met,outcome", [(True, FAST), (False, HEAVY), (None, ABSENT), (None, PLAIN)])
def test_a_target_is_met_by_the_median(met, outcome):
    assert outcome.met is met
