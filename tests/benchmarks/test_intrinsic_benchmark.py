"""The benchmark of the memory, on a small one: every line is there, in its unit, and scores what it says."""

import pytest

from mem_agent.benchmarks import intrinsic
from mem_agent.config import ConfigError
from mem_agent.rewards.intrinsic.settings import KnnPlusSettings


def test_every_line_of_a_small_memory(monkeypatch):
    def absent(name):
        raise ConfigError(f"{name} is not there")

    monkeypatch.setattr(intrinsic, "encoder", absent)
    lines = intrinsic.measure(quick=True, keys=60, values=4)
    assert [line.unit for line in lines[:-1]] == ["MB", "s", "s", "s", "s"] and lines[-1].values == ()
    assert [line.target for line in lines] == [200.0, 1.0, None, 2.0, 2.0, None]
    assert "60 questions of 4 vectors" in lines[0].what and "is not there" in lines[-1].note
    assert all(value > 0 for line in lines[1:-1] for value in line.values)


def test_the_store_is_full_and_half_the_questions_are_known():
    settings = KnnPlusSettings(keys=2_000, values=3, warmup=0)
    store = intrinsic.filled(settings, 0)
    assert (store.questions, store.vectors_held) == (2_000, 6_000)
    batch = intrinsic.batch(0)
    known = [intrinsic.question_id(answer.question) in store._serial for answer in batch]
    assert len(batch) == 256 and sum(known) == pytest.approx(128, abs=1)
    assert sum(answer.accuracy for answer in batch) == 64
