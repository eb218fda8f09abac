"""The guard of one server (``processes.ChildProcess``): a program that imports nothing of the package.

::

    python -I -S guard.py LAUNCHER [CLEANUP...] -- COMMAND...

It leads the server's process group. It ends with the server's exit code (128 + N after signal N) once the group is
empty: by itself, or because the process LAUNCHER is gone; then the folders CLEANUP go as well.
Named semaphores that joblib makes in a process die with it, or, where it was killed, are removed here.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import shutil
import signal
import subprocess
import sys
import time

ORPHAN_GRACE_S = 3.0
"""What a group gets between SIGTERM and SIGKILL when its launcher or its main process is gone."""

_reaped: set[int] = set()
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def run_guarded(launcher: int, cleanup: list[str], command: list[str]) -> int:
    """Start ``command``, wait for it or for the end of ``launcher``, and leave nothing behind."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans of the server become our children: we see when they are gone
    # Handlers rather than SIG_IGN, which the server would inherit: a group's SIGTERM is for the server to obey.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    began = time.time() - 1.0  # clocks of file systems lag a little
    server = subprocess.Popen(command, preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL))
    while server.poll() is None and os.getppid() == launcher:
        time.sleep(0.1)
    if not _children_gone(0.0):
        os.killpg(0, signal.SIGTERM)
    gone = _children_gone(ORPHAN_GRACE_S)
    for pid in (server.pid, *_reaped):
        remove_semaphores(pid, began)
    for folder in cleanup if os.getppid() != launcher else []:
        shutil.rmtree(folder, ignore_errors=True)
    if not gone:
        os.killpg(0, signal.SIGKILL)  # includes this process
    code = server.returncode
    return 1 if code is None else code if code >= 0 else 128 - code


def remove_semaphores(pid: int, since: float) -> None:
    """Those that the process left in shared memory, and not an earlier one's of another container by that number."""
    for left in glob.glob(f"/dev/shm/sem.loky-{pid}-*"):
        with contextlib.suppress(OSError):  # another user's, of a process that once had this number
            if os.stat(left).st_ctime >= since:
                os.unlink(left)


def _children_gone(timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        else:
            _reaped.add(pid)


if __name__ == "__main__":
    at = sys.argv.index("--")
    sys.exit(run_guarded(int(sys.argv[1]), sys.argv[2:at], sys.argv[at + 1:]))
