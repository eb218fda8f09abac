"""The reward's benchmark, on a small rollout and a quick chat model: its lines, and that it counts requests."""

from mem_agent.benchmarks import answer_utility


def test_every_line_of_a_small_rollout(monkeypatch):
    for name, value in (("PROMPTS", 2), ("SIBLINGS", 2), ("SESSIONS", 12), ("WORDS", 5), ("LATENCY_S", 0.02)):
        monkeypatch.setattr(answer_utility, name, value)
    lines = answer_utility.measure(quick=True)
    assert [line.target for line in lines] == [1.3, None] and all(line.at_most for line in lines)
    assert all(line.values[0] > 0.9 for line in lines), "nothing is quicker than the ideal, but for the clock"
    assert "4 rankings of 7 tiers, 32 requests in flight" in lines[0].what
    asked = int(lines[0].note.split(", ")[1].split()[0])
    assert 2 + 4 < asked <= 4 * 7 - 2, "no session at all is asked about once for each prompt"
