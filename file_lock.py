"""One process at a time writes a file or a folder; the system takes the lock back when the process ends, however."""

from __future__ import annotations

import fcntl
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
