"""The processes that read documents."""

import os
from pathlib import Path


def workers(parent: int | None = None) -> list[str]:
    """Those that this process has started, or ``parent``."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            status = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
            command = Path("/proc", pid, "cmdline").read_bytes()
            if int(status[1]) == (parent or os.getpid()) and b"document_worker" in command:
                found.append(pid)
        except OSError:
            continue  # it has ended
    return found
