"""The line about a run of several ranks names the one that died, though rank 0 fails before that is seen."""

import os
import sys

import pytest

from mem_agent.config import Config
from mem_agent.system.errors import MemAgentError
from mem_agent.system.processes import ChildProcess, ProcessError
from mem_agent.training import ranks

DYING = "import sys; sys.stdin.read(); print('MemoryError: none left'); sys.exit(3)"


@pytest.mark.parametrize("error", [
    RuntimeError("Connection closed by peer [127.0.0.1]:4711"), MemAgentError("checkpoint not written"),
])
def test_a_rank_that_is_dying_is_waited_for_and_named(error, tmp_path, monkeypatch):
    def start(rank, *_):
        return ChildProcess(f"trainer-{rank}", [sys.executable, "-c", DYING], os.environ, tmp_path / "log")

    monkeypatch.setattr(ranks, "_start", start)
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ProcessError, match=r"trainer-1 .* exited with code 3; log .*: MemoryError: none left"):
        with ranks.other_ranks(Config(train_procs=2), []):
            raise error from RuntimeError("Connection closed by peer [127.0.0.1]:4711")


def test_an_error_of_rank_zero_itself_passes(tmp_path, monkeypatch):
    def start(rank, *_):
        return ChildProcess(f"trainer-{rank}", [sys.executable, "-c", "import time; time.sleep(600)"], os.environ,
                            tmp_path / "log")

    monkeypatch.setattr(ranks, "_start", start)
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ZeroDivisionError):
        with ranks.other_ranks(Config(train_procs=2), []):
            1 / 0  # noqa: B018
