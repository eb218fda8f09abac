"""One run at a time in a SAVE_PATH."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .atomic_file import remove_drafts
from .errors import MemAgentError
from .file_lock import lock_dir


@contextmanager
def save_lock(save_path: str | Path) -> Iterator[None]:
    """Hold the folder for as long as the block lasts; other ranks of a run come in under their rank 0. What a killed
    run has left half-written in it is removed.

    Raises:
        MemAgentError: another run holds it, or it cannot be written.
    """
    if os.environ.get("RANK", "0") != "0":
        yield
        return
    busy = "is in use by another run; wait for it or set another"
    with lock_dir(Path(save_path), ".lock", _refused, busy=busy, other="set another"):
        remove_drafts(Path(save_path))
        yield


def _refused(reason: str) -> MemAgentError:
    return MemAgentError(f"SAVE_PATH={reason}")
