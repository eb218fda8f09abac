"""Ranks of one machine meet in a file, talk over loopback, and the one that dies is named.

Rank 0 fails before it is seen who died; nothing of the ranks can be reached from outside.
"""

import os
import subprocess
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


RANK = """
import os, sys, torch, torch.distributed as dist
from mem_agent.training import process_group
process_group.start(1)
total = torch.ones(1)
dist.all_reduce(total)
from mem_agent.tests.helpers.listeners import listeners
print(int(total), *sorted({address for address, _ in listeners([os.getpid()])}))
dist.barrier()
process_group.stop()
"""


def start(**env: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.endswith("SOCKET_IFNAME")}
    clean |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen([sys.executable, "-c", RANK], env=clean | env, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [1, 2])
def test_real_ranks_listen_on_loopback_alone(tmp_path, number):
    meeting = {ranks.MEETING: str(tmp_path / "store"), "WORLD_SIZE": str(number)} if number > 1 else {}
    started = [start(**meeting, **({"RANK": str(i), "LOCAL_RANK": str(i)} if meeting else {})) for i in range(number)]
    for process in started:
        total, *addresses = process.communicate()[0].split()
        assert process.returncode == 0 and int(total) == number and set(addresses) <= {"127.0.0.1", "::1"}, addresses
