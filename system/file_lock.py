"""One process at a time writes a file or a folder; the system takes the lock back when the process ends, however."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


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
    """Hold ``folder``, which is made, by the lock file ``name`` in it.

    Args:
        refused: makes the error that is raised where the folder cannot be written or another process holds it.
        busy: who that process is and what to do.
        other: what to do about a folder that cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / name).open("wb")
    except OSError as error:
        raise refused(f"{folder}: cannot be written ({error.strerror}); {other}") from None
    with file:
        lock(file, refused(f"{folder}: {busy}"))
        yield
