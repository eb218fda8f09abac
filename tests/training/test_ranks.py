"""Ranks of one machine meet in a file and talk over loopback: nothing of them can be reached from outside."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.config import Config
from mem_agent.training import ranks

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
