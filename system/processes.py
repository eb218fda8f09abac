"""Child servers that never outlive their launcher, and never die by name.

Every child runs under a guard (``guard.py``): a small Python process that leads an own session and process group,
starts the server in it, and adopts the server's orphans. Invariants:

- The group is the unit. A killed API server leaves its engine process behind, so both the guard and ``stop`` end the
  whole group: SIGTERM, a grace period, SIGKILL.
- The guard watches its parent. If the launcher is gone, even by SIGKILL, the group ends within a second or the grace
  period, and ``cleanup`` (folders with files only this run needs) are removed.
- The guard is only reaped in ``stop``, after the group was signalled, so its number is not somebody else's by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from . import guard
from .errors import MemAgentError
from .guard import ORPHAN_GRACE_S

log = logging.getLogger(__name__)

TERM_GRACE_S = 5.0
"""An idle engine ends within a second; one with open requests would wait for them."""
PROGRESS_EVERY_S = 10.0


class FleetError(MemAgentError):
    """Any failure of the rollout side: one line with the server, what happened and where its log is."""


class ProcessError(FleetError):
    """A server did not start or did not stay up: one line with its name, exit code, log file and last error."""


class ChildProcess:
    """A running server with its guard; ``pid`` is the guard's and also the process group."""

    def __init__(
        self, name: str, command: Sequence[str], env: Mapping[str, str], log_path: Path, cleanup: Sequence[Path] = (),
    ) -> None:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log_path = log_path
        self._log_start = log_path.stat().st_size if log_path.exists() else 0
        told = [str(os.getpid()), *map(str, cleanup), "--"]
        guarded = [sys.executable, "-I", "-S", guard.__file__, *told, *command]
        with log_path.open("ab") as out:
            self._guard = subprocess.Popen(
                guarded, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=dict(env),
                start_new_session=True,
            )
        self.pid = self._guard.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs. Looks without reaping, so that the pid stays this process's."""
        if self._guard.returncode is None:
            status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if status is None:
                return None
            return status.si_status if status.si_code == os.CLD_EXITED else 128 + status.si_status
        return self._guard.returncode

    def terminate(self) -> None:
        """Ask the whole group to end; returns at once."""
        if self._guard.returncode is None:
            os.killpg(self.pid, signal.SIGTERM)

    def stop(self, grace_s: float = TERM_GRACE_S) -> None:
        """End the whole group and wait for it; no grace is SIGKILL. Blocking: no cancellation can interrupt it."""
        if self._guard.returncode is not None:
            return
        if grace_s > 0:
            self.terminate()
        deadline = time.monotonic() + grace_s
        while self.exit_code is None and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(self.pid, signal.SIGKILL)
        self._guard.wait()
        deadline = time.monotonic() + ORPHAN_GRACE_S
        with contextlib.suppress(ProcessLookupError):  # killed members vanish a moment after the guard
            while time.monotonic() < deadline:
                os.killpg(self.pid, 0)
                time.sleep(0.01)

    def last_error(self) -> str:
        """The last exception in this process's log, else its last line of level ERROR, else its last line."""
        with self.log_path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, size - 200_000))
            lines = [_COLOUR.sub("", line) for line in file.read().decode(errors="replace").splitlines()]
        lines = [line for line in lines if _PREFIX.sub("", line).strip() and not _CONSEQUENCE.search(line)]
        exceptions = [line for line in lines if _EXCEPTION.match(_PREFIX.sub("", line).strip())]
        errors = [line for line in lines if _LEVEL.search(line)]
        last = (exceptions or errors or lines or ["(empty log)"])[-1]
        return _PREFIX.sub("", last).strip()[:500]

    def describe(self) -> str:
        """One line for error messages."""
        code = self.exit_code
        state = "is running" if code is None else f"exited with code {code}"
        return f"{self.name} (pid {self.pid}) {state}; log {self.log_path}: {self.last_error()}"


async def wait_until_healthy(child: ChildProcess, probe: Callable[[], Awaitable[bool]], timeout_s: float) -> None:
    """Return once ``probe`` is true; fail at once when the process exits, whoever answers in its place, or after
    ``timeout_s``.
    """
    start = reported = time.monotonic()
    while True:
        healthy, now = await probe(), time.monotonic()
        if child.exit_code is not None:
            raise ProcessError(f"{child.describe()} (before it was healthy)")
        if healthy:
            return
        if now - start > timeout_s:
            raise ProcessError(f"{child.describe()} (not healthy after {timeout_s:.0f} s)")
        if now - reported >= PROGRESS_EVERY_S:
            reported = now
            log.info("waiting for %s: %.0f s of at most %.0f; log %s", child.name, now - start, timeout_s,
                     child.log_path)
        await asyncio.sleep(0.1)


_EXCEPTION = re.compile(r"[\w.]*(Error|Exception|Exit)\b|thread '.*' panicked")
_LEVEL = re.compile(r"\b(ERROR|CRITICAL|FATAL)\b|\berror:")
# Said by a server's outer process after the inner one failed; the cause stands above it.
_CONSEQUENCE = re.compile(r"See root cause above|EngineDeadError|KeyboardInterrupt|CancelledError")
# vLLM's process name and source location.
_PREFIX = re.compile(r"^(\(\w+ pid=\d+\) )?((ERROR|INFO|WARNING|CRITICAL) \d\d-\d\d [\d:]+ \[[^]]*\] ?)?")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
