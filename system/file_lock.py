"""One process at a time writes a file or a folder; the system takes the lock back when the process ends, however."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar

File = TypeVar("File", bound=IO[bytes])
_MOST_TRIES = 100
"""A second try needs a holder that ended in that very moment; more mean a file system that makes inodes up."""


def lock(file: IO[bytes], refusal: Exception) -> None:
    """Hold ``file`` until it is closed. Raises ``refusal`` where another process holds it.

    Where the file system has no locks nothing is held.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise refusal from None
    except OSError:
        pass


@contextmanager
def lock_dir(
    folder: Path, name: str, refused: Callable[[str], Exception], *, busy: str, other: str
) -> Iterator[None]:
    """Hold ``folder``, which is made, by the lock file ``name`` in it, which goes with the block.

    Args:
        refused: makes the error that is raised where the folder cannot be written or another process holds it.
        busy: who that process is and what to do.
        other: what to do about a folder that cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = locked(folder / name, _opened, refused(f"{folder}: {busy}"))
    except OSError as error:
        named = error.filename or folder  # the folder, or a lock file in it that is another user's
        raise refused(f"{named}: cannot be written ({error.strerror}); {other}") from None
    with file:
        try:
            yield
        finally:
            with suppress(OSError):
                (folder / name).unlink()


def _opened(path: Path) -> IO[bytes]:
    """Not through a link: the folder may be somebody else's. A pipe is not waited for.

    Whoever may read a file can lock it, and so keep its owner out: those alone may who may write in the folder.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    mode = 0o660 if path.parent.stat().st_mode & stat.S_IWGRP else 0o600
    return os.fdopen(os.open(path, flags, mode), "wb")


def locked(path: Path, opened: Callable[[Path], File], refusal: Exception) -> File:
    """``path`` as ``opened`` gives it, locked; not one that its last holder removed after it was opened here, and that
    a third has made again.
    """
    for tries_left in reversed(range(_MOST_TRIES)):
        file = opened(path)
        try:
            lock(file, refusal)
        except BaseException:
            file.close()
            raise
        if not tries_left or _lies_at(path, file):
            break
        file.close()
    return file


def _lies_at(path: Path, file: IO[bytes]) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False
