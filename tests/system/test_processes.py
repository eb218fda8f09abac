"""Children never outlive their launcher, and say why a start failed; no cancellation loses or doubles a slot."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from mem_agent.system import cli
from mem_agent.system.concurrency import PriorityGate
from mem_agent.system.processes import ChildProcess, ProcessError, wait_until_healthy
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for

# A server with a grandchild that ignores SIGTERM, like an engine whose main process was killed.
WITH_GRANDCHILD = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
print("up", flush=True)
time.sleep(600)
"""
LAUNCHER = """
import os, sys, time
from pathlib import Path
from mem_agent.system.processes import ChildProcess
log, code, folder = sys.argv[1:]
child = ChildProcess("server", [sys.executable, "-c", code], os.environ, Path(log), cleanup=[Path(folder)])
print(child.pid, flush=True)
time.sleep(600)
"""


def group_members(group: int) -> list[int]:
    """Living processes of a process group."""
    def is_member(process):
        try:
            return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
        except (ProcessLookupError, psutil.NoSuchProcess):
            return False

    return [process.pid for process in psutil.process_iter() if is_member(process)]


def start(tmp_path: Path, code: str, name: str = "server") -> ChildProcess:
    return ChildProcess(name, [sys.executable, "-c", code], os.environ, tmp_path / f"{name}.log")


@pytest.mark.parametrize("killed", [False, True])
def test_neither_a_stop_nor_a_kill_of_the_server_leaves_a_stubborn_grandchild(tmp_path, killed):
    child = start(tmp_path, WITH_GRANDCHILD)
    wait_for(lambda: len(group_members(child.pid)) == 3 and "up" in child.log_path.read_text())
    assert child.exit_code is None
    if killed:
        (server,) = psutil.Process(child.pid).children()
        server.kill()
        wait_for(lambda: child.exit_code == 128 + signal.SIGKILL)
    else:
        child.stop(grace_s=0.5)
    wait_for(lambda: group_members(child.pid) == [])
    child.stop()  # a second stop is harmless


def test_a_launcher_killed_by_sigkill_leaves_neither_processes_nor_its_folder(tmp_path):
    folder = tmp_path / "weights"
    folder.mkdir()
    command = [sys.executable, "-c", LAUNCHER, tmp_path / "server.log", WITH_GRANDCHILD, folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        group = int(launcher.stdout.readline())
        wait_for(lambda: len(group_members(group)) == 3)
        launcher.kill()
    wait_for(lambda: group_members(group) == [])
    assert not folder.exists()


@pytest.mark.parametrize("answers", [False, True])
def test_a_dead_process_fails_the_wait_at_once_whoever_answers_in_its_place(tmp_path, answers):
    child = start(tmp_path, "print('INFO hello'); raise ValueError('no room for the KV cache')", "engine-0")

    async def probe():
        return answers and child.exit_code is not None

    began = time.monotonic()
    with pytest.raises(ProcessError) as failure:
        asyncio.run(wait_until_healthy(child, probe, timeout_s=10 * HANGS_AFTER_S))
    assert time.monotonic() - began < HANGS_AFTER_S and "\n" not in str(failure.value)
    for part in ("engine-0", "code 1", str(tmp_path / "engine-0.log"), "ValueError: no room for the KV cache"):
        assert part in str(failure.value)
    child.stop()


def test_the_last_error_skips_consequences_prefixes_and_earlier_runs(tmp_path):
    start(tmp_path, "print('OSError: from an earlier run')").stop()
    failed = start(tmp_path, r"""
print("this can cause errors like `OSError: [Errno 24] Too many open files`")
print("(EngineCore pid=12) ERROR 11-21 10:00:00 [core.py:9] ValueError: cache needs 2 GiB")
print("(EngineCore pid=12) ERROR 11-21 10:00:00 [core.py:10] giving up")
print("RuntimeError: Engine core initialization failed. See root cause above.")
print("bye")""")
    wait_for(lambda: failed.exit_code is not None)
    assert failed.last_error() == "ValueError: cache needs 2 GiB"
    failed.stop()


@pytest.mark.parametrize(("visible", "device", "compiles"), [
    (None, True, True), ("0,1", True, True), ("-1", True, False), (None, False, False),
])
def test_compiling_is_off_for_processes_without_a_gpu_alone(tmp_path, monkeypatch, visible, device, compiles):
    """Here was no GPU: what a process with one would be given."""
    monkeypatch.setattr(cli, "GPU_DEVICES", (tmp_path if device else tmp_path / "none",))
    monkeypatch.setattr(os, "environ", {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert ("TORCHDYNAMO_DISABLE" not in cli.process_environment(1)) is compiles


def test_slots_are_all_used_and_never_exceeded_whoever_is_cancelled():
    async def main():
        draw, gate, inside, most = random.Random(1), PriorityGate(3), 0, 0

        async def one():
            nonlocal inside, most
            async with gate.slot(draw.randrange(4)):
                inside += 1
                most = max(most, inside)
                try:
                    for _ in range(draw.randrange(4)):
                        await asyncio.sleep(0)
                finally:
                    inside -= 1

        tasks = [asyncio.ensure_future(one()) for _ in range(300)]
        while not all(task.done() for task in tasks):
            if draw.random() < 0.5:
                draw.choice(tasks).cancel()
            await asyncio.sleep(0)
        assert most == 3 and inside == 0 and not all(task.cancelled() for task in tasks)
        async with asyncio.timeout(HANGS_AFTER_S), gate.slot(), gate.slot(), gate.slot():
            pass

    asyncio.run(main())
