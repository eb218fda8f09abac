"""TRL's process: asked one thing at a time; its end and its absence are one line. TRL itself is not needed here."""

import subprocess
import sys

import pytest

from mem_agent.benchmarks.against_trl import Worker, trl_python
from mem_agent.benchmarks.outcome import BenchmarkError
from mem_agent.benchmarks.stopwatch import Sample

ECHO = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked == "score":
        sys.exit(3)
    print(json.dumps({"cpu": 1.5, "wall": 2.0, "result": None}), flush=True)
"""


@pytest.fixture
def worker():
    command = [sys.executable, "-c", ECHO]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield Worker(process)
    process.terminate()
    process.wait()


def test_a_step_tells_what_it_took(worker):
    assert [worker.step(), worker.step()] == [Sample(1.5, 2.0)] * 2


def test_a_process_that_ends_is_said_so(worker):
    for _ in range(2):  # while it dies, and when it is gone
        with pytest.raises(BenchmarkError, match="ended without an answer"):
            worker.score()


def test_an_environment_that_cannot_be_made_is_said_so(monkeypatch, capfd):
    monkeypatch.setenv("TRL_VENV", "/proc/nothing")
    with pytest.raises(BenchmarkError, match="cannot be installed"):
        trl_python()
