"""Waiting for other processes as long as a busy machine takes: a test fails by what they do, not by how long.

HANGS_AFTER_S is no measure of speed. It ends the test of a process that will never do what is waited for.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

HANGS_AFTER_S = 900.0


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    """Return once ``condition()`` holds; if ``process``, whose part it is, ends before, fail with what it has said."""
    deadline = time.monotonic() + HANGS_AFTER_S
    while not condition():
        ended = process is not None and process.poll() is not None and not condition()
        if ended or time.monotonic() > deadline:
            said: tuple[str, ...] = ()
            if process is not None:
                process.terminate()
                said = process.communicate(timeout=HANGS_AFTER_S)
            raise AssertionError(f"it {'ended' if ended else 'hangs'}; it said {said}")
        time.sleep(0.05)
