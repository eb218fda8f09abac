"""One process at a time writes a file or a folder; the system takes the lock back when the process ends, however."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

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
        file = _locked(folder / name, refused(f"{folder}: {busy}"))
    except OSError as error:
        raise refused(f"{folder}: cannot be written ({error.strerror}); {other}") from None
    with file:
        try:
            yield
        finally:
            with suppress(OSError):
                (folder / name).unlink()


def _locked(path: Path, refusal: Exception) -> IO[bytes]:
    """``path``, locked; not one that its last holder has removed since it was opened here, and a third made again."""
    for tries_left in reversed(range(_MOST_TRIES)):
        with ExitStack() as stack:
            file = stack.enter_context(path.open("wb"))
            lock(file, refusal)
            with suppress(FileNotFoundError):
                if not tries_left or os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    stack.pop_all()
                    break
    return file
