"""The benchmark of the sifter, on a small history: every line is there, in its unit and with its target."""

from mem_agent.benchmarks import sifter


def test_every_line_of_a_small_history():
    lines = sifter.measure(quick=True, sessions=20, questions=1_000)
    assert [(line.unit, line.target) for line in lines] == [
        ("ms", 100.0), ("ms", None), ("MB", 50.0), ("s", None), ("s", None)]
    assert "20 sessions" in lines[0].what
    assert "100 questions about 20 histories: memory above that of 10" in lines[2].what
    assert "0 texts embedded, 500 known" in lines[4].note  # 100 questions and 20 histories of 20 sessions
    assert all(line.values for line in lines)
