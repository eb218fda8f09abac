"""One run at a time in a SAVE_PATH."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..config import ConfigError


@contextmanager
def save_lock(save_path: str | Path) -> Iterator[None]:
    """Hold the folder for as long as the block lasts; other ranks of a run come in under their rank 0.

    Raises:
        ConfigError: another run holds it.
    """
    if os.environ.get("RANK", "0") != "0":
        yield
        return
    Path(save_path).mkdir(parents=True, exist_ok=True)
    with (Path(save_path) / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            where = f"SAVE_PATH={str(save_path)!r}"
            raise ConfigError(f"{where} is in use by another run; wait for it or set another") from None
        yield
