"""The guard of one server (``processes.ChildProcess``): a program that imports nothing of the package.

::

    python -I -S guard.py LAUNCHER [CLEANUP...] -- COMMAND...

It leads the server's process group. It ends with the server's exit code (128 + N after signal N) once the group is
empty: by itself, or because the process LAUNCHER is gone; then the folders CLEANUP go as well.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time

ORPHAN_GRACE_S = 3.0
"""What a group gets between SIGTERM and SIGKILL when its launcher or its main process is gone."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def run_guarded(launcher: int, cleanup: list[str], command: list[str]) -> int:
    """Start ``command``, wait for it or for the end of ``launcher``, and leave nothing behind."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans of the server become our children: we see when they are gone
    # Handlers rather than SIG_IGN, which the server would inherit: a group's SIGTERM is for the server to obey.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    server = subprocess.Popen(command, preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL))
    while server.poll() is None and os.getppid() == launcher:
        time.sleep(0.1)
    if not _children_gone(0.0):
        os.killpg(0, signal.SIGTERM)
    gone = _children_gone(ORPHAN_GRACE_S)
    for folder in cleanup if os.getppid() != launcher else []:
        shutil.rmtree(folder, ignore_errors=True)
    if not gone:
        os.killpg(0, signal.SIGKILL)  # includes this process
    code = server.returncode
    return 1 if code is None else code if code >= 0 else 128 - code


def _children_gone(timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.02)
    except ChildProcessError:
        return True


if __name__ == "__main__":
    at = sys.argv.index("--")
    sys.exit(run_guarded(int(sys.argv[1]), sys.argv[2:at], sys.argv[at + 1:]))
