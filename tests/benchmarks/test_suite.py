"""`mem-agent bench`: names, targets, table, JSON; a benchmark that fails is a line."""

from importlib import import_module

import orjson
import pytest

from mem_agent.benchmarks import __main__ as command
from mem_agent.benchmarks.outcome import Outcome, Sample, interleaved, ratio, table, timed

FAST = Outcome("trainer", "update", (8.1, 7.9, 8.4), target=8, wall=(7.0,), samples={"rows": [Sample(8.0, 9.0)]})
HEAVY = Outcome("converter", "memory", (1.6,), target=1.5, at_most=True, note="3 MB")
ABSENT = Outcome("rollout", "all of it", note="no engine", target=1.05, at_most=True)
PLAIN = Outcome("sifter", "stage 1", (300.0,), unit="s")


def test_the_table_has_target_ratio_spread_and_reason():
    lines = table([FAST, HEAVY, ABSENT, PLAIN]).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[2:] == [
        ["trainer", "update", "8.00 times", "8.10 times (7.90 to 8.40)", "yes", "by wall 7.00"],
        ["converter", "memory", "at most 1.50 times", "1.60 times", "**no**", "3 MB"],
        ["rollout", "all of it", "at most 1.05 times", "not measured", "not measured", "no engine"],
        ["sifter", "stage 1", "", "300.00 s", "", ""],
    ]


@pytest.mark.parametrize("met,outcome", [(True, FAST), (False, HEAVY), (None, ABSENT), (None, PLAIN)])
def test_a_target_is_met_by_the_median(met, outcome):
    assert outcome.met is met


def test_every_benchmark_is_a_module_with_a_measure():
    assert all(callable(import_module(f"mem_agent.benchmarks.{name}").measure) for name in command.BENCHMARKS)


def test_a_run_prints_its_table_and_writes_every_sample(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "run", lambda names, quick: [FAST, HEAVY])
    assert command.main(["trainer", "converter", "--output", str(tmp_path / "speed.json")]) == 0
    content = orjson.loads((tmp_path / "speed.json").read_bytes())
    assert content["outcomes"][0]["samples"] == {"rows": [{"cpu": 8.0, "wall": 9.0}]} and content["machine"]["cpu"]
    assert "8.10 times" in capsys.readouterr().out


def test_an_unknown_name_is_named(capsys):
    assert command.main(["trainr"]) == 1
    assert "trainr" in capsys.readouterr().err


def test_a_benchmark_that_fails_is_a_line_and_the_rest_goes_on(monkeypatch):
    monkeypatch.setitem(command.BENCHMARKS, "no_such_module", "nothing")
    (line,) = command.run(["no_such_module"], quick=True)
    assert line.what == "all of it" and line.values == () and "no_such_module" in line.note


def test_alternatives_take_turns():
    order = []

    def variant(name):
        def measure():
            order.append(name)
            return Sample(len(order), 0.0)

        return measure

    samples = interleaved({"a": variant("a"), "b": variant("b")}, 3)
    assert order == ["a", "b"] * 3
    assert [s.cpu for s in samples["a"]] == [1, 3, 5] and [s.cpu for s in samples["b"]] == [2, 4, 6]


def test_a_ratio_is_of_its_own_round():
    line = ratio("trainer", "update", [Sample(8, 10), Sample(9, 30)], [Sample(1, 5), Sample(1.2, 5)])
    assert line.values == pytest.approx((8.0, 7.5)) and line.wall == (2.0, 6.0)
    with pytest.raises(ValueError):
        ratio("trainer", "update", [Sample(1, 1)], [])


def test_cpu_seconds_are_work_and_wall_seconds_are_time():
    import time

    slept = timed(lambda: time.sleep(0.05))
    assert slept.wall >= 0.05 > slept.cpu
