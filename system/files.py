"""Files that are the old one or the new one, never half of either; folders that one run at a time writes to.

A write goes to a draft beside its target, reaches the disk, and takes the target's place by one rename. A link stays a
link: the file it leads to is replaced. An error of a write names the file, which "No space left on device" alone
does not.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

import filelock
import psutil

from .errors import MemAgentError


class DiskFull(MemAgentError, OSError):
    """One line with the file that could not be written."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """A full disk in the block becomes DiskFull, which names ``path``."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise DiskFull(f"{path}: {error.strerror}; make room, and the same command goes on") from error


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path``, on disk, when the block ends well, and vanishes otherwise. What a
    killed process has left of it, the next one writes over."""
    target = Path(os.path.realpath(path))
    if target.is_dir() or not target.parent.is_dir():
        reason = "is a folder" if target.is_dir() else "has no folder to lie in"
        raise MemAgentError(f"{path}: cannot be written, it {reason}")
    draft = target.with_name(f".{target.name}.draft.tmp")
    with naming(path):
        try:
            with draft.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the content of ``path`` by one rename."""
    with replacing(path) as file:
        file.write(content)


def append_whole(file: IO[bytes], content: bytes) -> None:
    """Write all of ``content`` at the end of a file opened with ``open("ab", buffering=0)``, or nothing: after half a
    line the next one would be lost as well.
    """
    end = os.fstat(file.fileno()).st_size
    rest = memoryview(content)
    with naming(Path(file.name)):
        try:
            while rest:
                rest = rest[file.write(rest):]
        except BaseException:
            file.truncate(end)
            raise


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def folder_lock(folder: Path, *, busy: str = "is in use by another run", name: str = ".lock") -> Iterator[None]:
    """Make ``folder`` and hold it while the block runs. A killed process holds nothing.

    Raises:
        MemAgentError: another process holds it; the message is ``busy`` behind the folder's name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(folder / name, timeout=0):
            yield
    except filelock.Timeout:
        raise MemAgentError(f"{folder}: {busy}") from None


SHARED_MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
"""A folder in memory, where the machine has one."""


@contextmanager
def scratch_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder that is removed after the block; one that a killed process left is removed by the next process.

    Its name holds the pid of its owner: ``mem_agent-weights-4711-k2j3``.
    """
    parent = parent or Path(tempfile.gettempdir())
    for left in parent.glob(f"{prefix}*-*"):
        owner = left.name.removeprefix(prefix).partition("-")[0]
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
