"""Where a drill takes place: the folder of the run, disks of its own, and every process that belongs to it.

A process is known by the drill's variable in its environment or, where it has overwritten that, by the group of a
guard. As root the scene has a mount namespace of its own with small disks for SAVE_PATH, TMPDIR and /dev/shm: they can
be filled without hurting anybody, and what is left on them was left by this run.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from .moments import MARK

ENGINE, ROUTER, GUARD, RANK = (
    "mem_agent.serving.engine_server", "vllm_router.launch_router", "system/guard.py", "mem_agent.training.train"
)
ENGINE_CORE = "EngineCore"
"""The title that vLLM's engine process takes where it can; else it has its API server's command line."""
SHM = "/dev/shm"
_DISKS = {"save": "400m", "tmp": "64m", SHM: "400m"}
_FILLER = "filler"
_ALLOWED = ("torchinductor_", "wandb-artifacts", "wandb-media")
"""A cache that is kept for the next run; empty folders that an import of wandb makes, where the trainer was killed."""


@cache
def can_mount() -> bool:
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(command, capture_output=True).returncode == 0
    return False


@dataclass
class Scene:
    folder: Path
    """Of the drill: data, socket, orders, what the run said, and SAVE_PATH below it."""
    holder: subprocess.Popen[bytes] | None
    """Keeps the mount namespace; None: there is none."""
    groups: dict[int, float]
    """Every guard seen so far, which leads a group, and when it began: numbers of processes are given again."""
    disks: tuple[str, ...] = ("save", "tmp")
    """Folders below that of the drill, and SHM; where there is a holder each is a small disk."""
    leaves: tuple[str, ...] = _ALLOWED
    """Parts of the names of what may be left on them."""
    trainer: int = 0

    @property
    def save(self) -> Path:
        return self.inside(self.folder / "save")

    @property
    def mark(self) -> str:
        return str(self.folder / "hub")

    def inside(self, path: Path) -> Path:
        """A path of the run, as it is seen from here."""
        return path if self.holder is None else Path(f"/proc/{self.holder.pid}/root{path}")

    def command(self, *command: str) -> list[str]:
        """``command`` in the scene's namespace."""
        enter = [] if self.holder is None else ["nsenter", f"--mount=/proc/{self.holder.pid}/ns/mnt"]
        return [*enter, *command]

    # --- disks ------------------------------------------------------------------------------------------------------

    def fill(self, disk: str) -> None:
        """Leave no block free on one of ``disks``."""
        assert self.holder is not None, "only a disk of the scene's own is filled"
        with (self.inside(self.folder / disk) / _FILLER).open("wb", buffering=0) as file:
            for size in (2**20, 2**12):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass

    def make_room(self) -> None:
        for disk in self.disks:
            (self.inside(self.folder / disk) / _FILLER).unlink(missing_ok=True)

    def left_on_disks(self) -> list[str]:
        """What the run left outside of SAVE_PATH."""
        disks = [self.folder / "tmp"] + ([Path(SHM)] if self.holder else [])
        found = [path for disk in disks for path in self.inside(disk).rglob("*")]
        return [str(path) for path in found if not any(name in str(path) for name in self.leaves)]

    # --- processes --------------------------------------------------------------------------------------------------

    def processes(self) -> list[psutil.Process]:
        """All of the run that live now, whoever their parents are."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if process.status() != psutil.STATUS_ZOMBIE and self._is_of_run(process):
                    found.append(process)
        return found

    def _is_of_run(self, process: psutil.Process) -> bool:
        if process.environ().get(MARK) == self.mark:
            if GUARD in " ".join(process.cmdline()):
                self.groups[process.pid] = process.create_time()
            return True
        return self._is_led(process, os.getpgid(process.pid))

    def _is_led(self, process: psutil.Process, group: int) -> bool:
        """By a guard of the run, which may have ended: then nobody else has led the group since."""
        if group not in self.groups:
            return False
        began = self.groups[group]
        led_by_guard = not psutil.pid_exists(group) or psutil.Process(group).create_time() == began
        return led_by_guard and process.create_time() >= began

    def named(self, *what: str) -> list[psutil.Process]:
        """Whose command lines hold all of this; one that ends meanwhile is none."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                line = " ".join(process.cmdline())
                if all(part in line for part in what):
                    found.append(process)
        return found

    def guards(self, what: str) -> list[psutil.Process]:
        """Guards of engines, of the router, or of further ranks."""
        return self.named(GUARD, what)

    def servers(self, what: str) -> list[psutil.Process]:
        """What the guards guard: an engine's API server, a router, a rank."""
        found = []
        for guard in self.guards(what):
            with contextlib.suppress(psutil.Error):
                found += guard.children()
        return found

    def engine_cores(self, server: psutil.Process) -> list[psutil.Process]:
        """Of one API server. It has other children as well, such as ``lscpu`` while it starts, which come and go."""
        found = []
        for child in server.children():
            with contextlib.suppress(psutil.Error):
                if any(part in " ".join(child.cmdline()) for part in (ENGINE, ENGINE_CORE)):
                    found.append(child)
        return found


@contextlib.contextmanager
def scene(disks: bool, sizes: Mapping[str, str] = _DISKS) -> Iterator[Scene]:
    """``disks``: small ones of its own. The folder is short: a socket's path may have 107 letters."""
    folder = Path(tempfile.mkdtemp(prefix="drill-", dir="/var/tmp"))
    names = tuple(name for name in sizes if name != SHM)
    for name in (*names, "orders"):
        (folder / name).mkdir()
    holder = _holder(folder, sizes) if disks else None
    found = Scene(folder, holder, {}, tuple(sizes) if holder else names)
    try:
        yield found
    finally:
        while processes := found.processes():  # one that was about to start another may have done so
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(processes, timeout=1)  # one that nobody reaps stays, and is none of them any longer
        if holder is not None:
            assert holder.stdin is not None
            holder.stdin.close()
            holder.wait()
        shutil.rmtree(folder)


def _holder(folder: Path, sizes: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A process in a mount namespace with the small disks; it ends with this one, and they with it."""
    mounts = "; ".join(f"mount -t tmpfs -o size={size} tmpfs '{folder / disk}'" for disk, size in sizes.items())
    command = ["unshare", "--mount", "sh", "-ec", f"{mounts}; echo ready; exec cat"]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    if holder.stdout.readline() != b"ready\n":
        raise OSError(errno.EPERM, "no disks of its own for a drill")
    return holder


def in_module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments]
