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
        code = None if process is None else process.poll()
        if code is None and time.monotonic() < deadline:
            time.sleep(0.05)
            continue
        if condition():
            return
        if process is None:
            raise AssertionError(f"not so after {HANGS_AFTER_S:g} s")
        process.terminate()
        said = [stream for stream in process.communicate(timeout=HANGS_AFTER_S) if stream]
        raise AssertionError(f"{'hung' if code is None else f'ended with {code}'}; it said:\n" + "\n".join(said))
