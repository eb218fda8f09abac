"""The one command: names, JSON, table, page and gate; what it refuses, in one line each."""

from importlib import import_module
from inspect import signature

import orjson
import pytest

from mem_agent.benchmarks import __main__ as command
from mem_agent.benchmarks import gate, report, suite
from mem_agent.benchmarks.against_trl import NAME as TRL
from mem_agent.benchmarks.against_trl import measure as measure_trl
from mem_agent.benchmarks.outcome import BenchmarkError, Outcome, from_json, table, to_json
from mem_agent.benchmarks.report import BEGIN, END, Report
from mem_agent.benchmarks.stopwatch import Sample

MACHINE = {"cpu": "some", "cores": 2, "memory_gb": 8.0, "load": [1.5, 0, 0], "python": "3", "versions": {"torch": "2"},
           "commit": "abc"}
FAST = Outcome("trainer", "update", (8.1, 7.9, 8.4), target=8, gated=True, wall=(7.0,),
               samples={"rows": [Sample(8.0, 9.0)]})
HEAVY = Outcome("converter", "memory", (1.6,), target=1.5, at_most=True, gated=True, note="3 MB")
ABSENT = Outcome("evaluation", "all of it", note="no engine", target=1.05, at_most=True)
PLAIN = Outcome("pocket", "the whole run", (300.0,), unit="s")


@pytest.fixture
def measured(monkeypatch):
    """The command with four outcomes in the place of measurements."""
    monkeypatch.setattr(command, "run", lambda names, quick: [o for o in (FAST, HEAVY, ABSENT, PLAIN)
                                                              if o.benchmark in names])
    monkeypatch.setattr(command.machine, "describe", lambda: MACHINE)


@pytest.mark.parametrize(
    ("outcome", "met"), [(FAST, True), (HEAVY, False), (ABSENT, None), (PLAIN, None)], ids=lambda x: str(x)[:12]
)
def test_a_target_is_met_by_the_median(outcome, met):
    assert outcome.met is met


def test_an_outcome_says_something():
    with pytest.raises(AssertionError):
        Outcome("trainer", "update")


@pytest.mark.parametrize("outcome", [FAST, HEAVY, ABSENT, PLAIN], ids=lambda o: o.benchmark)
def test_json_gives_back_what_was_measured(outcome):
    assert from_json(orjson.loads(orjson.dumps(to_json(outcome)))) == outcome


def test_the_table_has_target_ratio_spread_and_reason():
    lines = table([FAST, HEAVY, ABSENT, PLAIN]).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[2:] == [
        ["trainer", "update", "8.00 times", "8.10 times (7.90 to 8.40)", "yes", "by wall 7.00"],
        ["converter", "memory", "at most 1.50 times", "1.60 times", "**no**", "3 MB"],
        ["evaluation", "all of it", "at most 1.05 times", "not measured", "not measured", "no engine"],
        ["pocket", "the whole run", "", "300.00 s", "", ""],
    ]


# --- the gate -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "at_most", "now", "fails"),
    [
        (8.0, False, 6.81, False),
        (8.0, False, 6.79, True),
        (8.0, False, 20.0, False),
        (1.05, True, 1.20, False),
        (1.05, True, 1.21, True),
        (1.05, True, 0.5, False),
    ],
)
def test_the_gate_is_fifteen_percent_to_the_worse_side(before, at_most, now, fails):
    outcome = Outcome("trainer", "x", (now,), gated=True, at_most=at_most)
    baseline = {"ratios": {"trainer: x": {"benchmark": "trainer", "ratio": before, "at_most": at_most}}}
    found = gate.failures([outcome], baseline, ["trainer"])
    assert bool(found) is fails and all(line.startswith("trainer: x: ") for line in found)


def test_a_ratio_that_was_asked_for_and_not_measured_fails_and_another_is_left_alone():
    baseline = {"ratios": {"trainer: x": {"benchmark": "trainer", "ratio": 8.0, "at_most": False}}}
    assert gate.failures([], baseline, ["trainer"]) == ["trainer: x: not measured; the baseline has 8"]
    assert gate.failures([], baseline, ["converter"]) == []


def test_a_baseline_keeps_what_was_not_measured_again(tmp_path):
    path = tmp_path / "baseline.json"
    assert gate.write_baseline(path, [FAST, HEAVY, PLAIN], MACHINE, ["trainer", "converter", "pocket"]) == 2
    assert gate.write_baseline(path, [Outcome("trainer", "new", (2.0,), gated=True)], MACHINE, ["trainer"]) == 1
    found = gate.read_baseline(path)["ratios"]
    assert {key: entry["ratio"] for key, entry in found.items()} == {"trainer: new": 2.0, "converter: memory": 1.6}


def test_the_committed_baseline_holds_ratios_of_benchmarks_that_are_there():
    for key, entry in gate.read_baseline(gate.BASELINE)["ratios"].items():
        assert key.startswith(f"{entry['benchmark']}: ") and entry["benchmark"] in suite.BENCHMARKS
        assert entry["ratio"] > 0


# --- the command --------------------------------------------------------------------------------------------------


def test_every_benchmark_is_a_module_with_a_measure():
    for name in suite.BENCHMARKS:
        measure = import_module(f"mem_agent.benchmarks.{name}").measure
        assert next(iter(signature(measure).parameters)) == "quick"


def test_json_page_and_gate_of_one_run(tmp_path, measured, capsys):
    output, page, baseline = tmp_path / "speed.json", tmp_path / "speed.md", tmp_path / "baseline.json"
    page.write_text(f"# Speed\n{BEGIN}\nold\n{END}\nThe end.\n")
    assert command.main(["--output", str(output), "--markdown", str(page), "--write-baseline", "--baseline",
                         str(baseline)]) == 0
    content = orjson.loads(output.read_bytes())
    assert content["schema"] == 1 and content["machine"]["cpu"] == "some" and len(content["outcomes"]) == 4
    assert content["outcomes"][0]["samples"] == {"rows": [{"cpu": 8.0, "wall": 9.0}]}
    text = page.read_text()
    assert text.startswith("# Speed\n") and text.endswith("The end.\n") and "old" not in text
    assert "some, 2 cores" in text and "8.10 times (7.90 to 8.40)" in text
    assert command.main(["--gate", "--baseline", str(baseline)]) == 0
    slower = orjson.loads(baseline.read_bytes())
    slower["ratios"]["trainer: update"]["ratio"] = 10.0
    baseline.write_bytes(orjson.dumps(slower))
    capsys.readouterr()
    assert command.main(["--gate", "--baseline", str(baseline)]) == 1
    assert capsys.readouterr().err == "gate: trainer: update: 8.1, 19% worse than the baseline's 10\n"


def test_an_earlier_run_is_read_instead_of_measured(tmp_path, measured, capsys, monkeypatch):
    output = tmp_path / "speed.json"
    assert command.main(["--output", str(output)]) == 0
    monkeypatch.setattr(command, "run", None)
    capsys.readouterr()
    assert command.main(["trainer", "--read", str(output)]) == 0
    shown = capsys.readouterr().out
    assert "8.10 times" in shown and "300.00 s" not in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trainr"], "no benchmark 'trainr'; there are: trainer, against_trl, "),
        (["--gate", "--baseline", "absent.json"], "there is no baseline absent.json; write one with --write-baseline"),
        (["--gate", "--baseline", "odd.json"], "odd.json is no baseline"),
        (["--output", "absent/x.json"], "absent/x.json cannot be written; name a file in a folder that exists"),
        (["--output", "."], ". cannot be written"),
        (["--read", "odd.json"], "odd.json is no output of this command"),
        (["--markdown", "odd.json"], "odd.json does not have the two marks"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_one_line_says_what_is_wrong(arguments, said, tmp_path, monkeypatch, measured, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.json").write_text('{"ratios": 3}')
    assert command.main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {said}")


def test_a_benchmark_that_fails_is_a_line_and_the_rest_goes_on(monkeypatch):
    monkeypatch.setitem(suite.BENCHMARKS, "no_such_module", "nothing")
    (line,) = suite.run(["no_such_module"], quick=True)
    assert line.key == "no_such_module: all of it" and line.values == () and "no_such_module" in line.note


def test_without_trl_its_line_says_so(monkeypatch):
    def refuse():
        raise BenchmarkError("TRL's environment cannot be installed")

    monkeypatch.setattr("mem_agent.benchmarks.against_trl.trl_python", refuse)
    (line,) = measure_trl()
    assert (line.benchmark, line.met, line.target) == (TRL, None, 7.0) and "cannot be installed" in line.note


def test_marks_that_are_missing_leave_the_page_alone(tmp_path):
    page = tmp_path / "speed.md"
    page.write_text("mine")
    with pytest.raises(BenchmarkError, match="two marks"):
        report.into_page(page, Report(MACHINE, ["trainer"], False, 0.0, 60.0, [FAST]))
    assert page.read_text() == "mine"
