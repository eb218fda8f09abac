"""The benchmark of the sifter, on a small history: every line is there, in its unit and with its target."""

from mem_agent.benchmarks import sifter
from mem_agent.tests.helpers.stages_here import without_ray


def test_every_line_of_a_small_history(monkeypatch):
    without_ray(monkeypatch)
    monkeypatch.setattr(sifter, "_A_SECOND", 10_000)
    lines = sifter.measure(quick=True, sessions=20, questions=1_000)
    assert [(line.unit, line.target) for line in lines] == [
        ("ms", 100.0), ("ms", None), ("MB", 50.0), ("s", None), ("s", None), ("times", 1.3), ("times", 1.3)]
    assert "20 sessions" in lines[0].what
    assert "100 questions about 20 histories: memory above that of 10" in lines[2].what
    assert "0 texts embedded, 500 known" in lines[4].note  # 100 questions and 20 histories of 20 sessions
    assert all(line.values for line in lines)


def test_an_ideal_window_is_full_until_the_last_request_begins():
    assert sifter.ideal([3.0, 1.0, 1.0, 4.0], 2) == 6.0  # 3 | 1 then 1 then 4
    assert sifter.ideal([3.0, 1.0], 5) == 3.0
