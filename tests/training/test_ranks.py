"""Ranks of one machine meet in a file, talk over loopback, and the one that dies is named.

Rank 0 fails before it is seen who died; nothing of the ranks can be reached from outside.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

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


def test_half_of_what_torchrun_says_makes_no_rank():
    """Some clusters set the one without the other for whatever runs in them."""
    process = start(WORLD_SIZE="4", LOCAL_RANK="3")
    total, *_ = process.communicate()[0].split()
    assert process.returncode == 0 and int(total) == 1


def test_ranks_meet_in_shared_memory_and_without_it_in_tmpdir(tmp_path, monkeypatch):
    places = []

    def started(rank, config, arguments, meeting):
        places.append(Path(meeting[ranks.MEETING]).parent.parent)
        return ranks.ChildProcess("rank", [sys.executable, "-c", ""], os.environ, tmp_path / "log")

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(ranks, "_start", started)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for memory in (tmp_path, tmp_path / "none"):
        monkeypatch.setattr(ranks, "SHARED_MEMORY", memory)
        with ranks.other_ranks(Config(train_procs=2), []):
            pass
    assert places == [tmp_path, tmp_path / "tmp"]


def test_the_meeting_is_their_users_alone_and_goes_with_the_run(tmp_path, monkeypatch):
    began = []

    def started(rank, config, arguments, meeting):
        began.append(Path(meeting[ranks.MEETING]))
        return ranks.ChildProcess("rank", [sys.executable, "-c", ""], os.environ, tmp_path / "log")

    monkeypatch.setattr(ranks, "_start", started)
    with ranks.other_ranks(Config(train_procs=3), []):
        [folder] = {path.parent for path in began}
        assert folder.stat().st_mode & 0o777 == 0o700 and os.environ[ranks.MEETING] == str(began[0])
    assert not folder.exists() and not {ranks.MEETING, "RANK", "WORLD_SIZE", "LOCAL_RANK"} & os.environ.keys()
