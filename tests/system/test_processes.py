"""Children never outlive their launcher: groups, orphans, SIGKILL, and what a failed start says."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mem_agent.system import process_environment
from mem_agent.system.processes import ChildProcess, ProcessError, wait_until_healthy
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for

# A server with a grandchild that ignores SIGTERM, like an engine whose main process was killed.
WITH_GRANDCHILD = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
print("up", flush=True)
time.sleep(600)
"""


def group_members(group: int) -> list[int]:
    """Living (not zombie) processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return sorted(found)


def start(tmp_path: Path, code: str, name: str = "server") -> ChildProcess:
    return ChildProcess(name, [sys.executable, "-c", code], os.environ, tmp_path / f"{name}.log")


def start_with_grandchild(tmp_path: Path) -> ChildProcess:
    child = start(tmp_path, WITH_GRANDCHILD)
    wait_for(lambda: len(group_members(child.pid)) == 3 and "up" in child.log_path.read_text())
    return child


def test_stop_ends_the_whole_group_even_a_stubborn_grandchild(tmp_path):
    child = start_with_grandchild(tmp_path)
    assert child.exit_code is None
    child.stop(grace_s=0.5)
    wait_for(lambda: group_members(child.pid) == [])
    child.stop()  # a second stop is harmless


def test_orphans_of_a_killed_server_are_ended_and_the_exit_is_seen(tmp_path):
    child = start_with_grandchild(tmp_path)
    server = next(p for p in group_members(child.pid) if f"{child.pid}\n" in status_line(p, "PPid"))
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: child.exit_code is not None)
    wait_for(lambda: group_members(child.pid) == [])
    assert child.exit_code == 128 + signal.SIGKILL
    child.stop()


def test_a_launcher_killed_by_sigkill_leaves_neither_processes_nor_its_folder(tmp_path):
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "model.safetensors").write_text("x")
    launcher_code = (
        "import os, sys, time; from pathlib import Path; from mem_agent.system.processes import ChildProcess\n"
        f"c = ChildProcess('server', [sys.executable, '-c', {WITH_GRANDCHILD!r}], os.environ,"
        f" Path({str(tmp_path / 'server.log')!r}), cleanup=[Path({str(folder)!r})])\n"
        "print(c.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", launcher_code], stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        group = int(launcher.stdout.readline())
        wait_for(lambda: len(group_members(group)) == 3)
        launcher.kill()
    wait_for(lambda: group_members(group) == [])
    assert not folder.exists()


@pytest.mark.asyncio
async def test_a_dead_process_fails_the_wait_at_once_with_name_code_log_and_cause(tmp_path):
    child = start(tmp_path, "print('INFO hello'); raise ValueError('no room for the KV cache')", "engine-0")
    began = time.monotonic()
    with pytest.raises(ProcessError) as failure:
        await wait_until_healthy(child, never, timeout_s=10 * HANGS_AFTER_S)
    assert time.monotonic() - began < HANGS_AFTER_S
    message = str(failure.value)
    assert "\n" not in message
    for part in ("engine-0", "code 1", str(tmp_path / "engine-0.log"), "ValueError: no room for the KV cache"):
        assert part in message
    child.stop()


@pytest.mark.asyncio
async def test_a_process_that_ended_is_not_healthy_because_somebody_else_answers_in_its_place(tmp_path):
    child = start(tmp_path, "raise OSError('address already in use')", "engine-0")

    async def somebody_elses():
        return child.exit_code is not None

    with pytest.raises(ProcessError, match=r"engine-0.*OSError: address already in use \(before it was healthy\)"):
        await wait_until_healthy(child, somebody_elses, timeout_s=HANGS_AFTER_S)
    child.stop()


def test_the_last_error_skips_consequences_prefixes_and_earlier_runs(tmp_path):
    first = start(tmp_path, "print('OSError: from an earlier run')")
    first.stop()
    second = start(tmp_path, r"""
print("this can cause errors like `OSError: [Errno 24] Too many open files`")
print("(EngineCore pid=12) ERROR 11-21 10:00:00 [core.py:9] ValueError: cache needs 2 GiB")
print("(EngineCore pid=12) ERROR 11-21 10:00:00 [core.py:10] giving up")
print("RuntimeError: Engine core initialization failed. See root cause above.")
print("bye")""")
    wait_for(lambda: second.exit_code is not None)
    assert second.last_error() == "ValueError: cache needs 2 GiB"
    third = start(tmp_path, "print('calm')")
    wait_for(lambda: third.exit_code is not None)
    assert third.last_error() == "calm"
    second.stop()
    third.stop()


def test_a_server_whose_log_has_no_room_is_told_from_one_that_failed(tmp_path, monkeypatch):
    child = start(tmp_path, "raise ValueError('No space left on device')")
    wait_for(lambda: child.exit_code is not None)
    assert child.describe().endswith("ValueError: No space left on device")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=4096))
    assert child.describe().endswith(f"log {child.log_path}: the disk of its log is full; make room")
    child.stop()


def status_line(pid: int, key: str) -> str:
    return next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines(True) if line.startswith(key))


async def never() -> bool:
    await asyncio.sleep(0)
    return False


# --- environment ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("visible", "device", "compiles"), [
    (None, True, True), ("0,1", True, True), ("", True, False), ("-1", True, False), (None, False, False),
])
def test_compiling_is_off_for_processes_without_a_gpu_alone(tmp_path, monkeypatch, visible, device, compiles):
    """Here was no GPU: what a process with one would be given."""
    monkeypatch.setattr(process_environment, "GPU_DEVICES", (tmp_path if device else tmp_path / "none",))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert ("TORCHDYNAMO_DISABLE" not in process_environment.process_environment(1)) is compiles
