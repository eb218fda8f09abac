"""What a measurement was made on: the machine, what it was busy with, versions, and the commit."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "megatron-core", "transformers", "vllm", "vllm-router", "numpy")


def describe() -> dict[str, Any]:
    """Plain values; ``load`` is the load average of the last minute, five and fifteen."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "load": [round(value, 2) for value in os.getloadavg()],
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
        "commit": _commit(Path(__file__).parents[1]),
    }


def line(machine: Mapping[str, Any]) -> str:
    """The description in one sentence."""
    versions = ", ".join(f"{name} {found}" for name, found in machine["versions"].items())
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:g} GB; load average "
        f"{machine['load'][0]:g} at the start; Python {machine['python']}, {versions}; commit {machine['commit']}"
    )


def _cpu() -> str:
    for entry in Path("/proc/cpuinfo").read_text().splitlines():
        if entry.startswith("model name"):
            return entry.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _commit(root: Path) -> str:
    """With a plus sign where files differ from it; "unknown" outside a repository."""
    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=True).stdout

    try:
        return git("rev-parse", "--short", "HEAD").strip() + "+" * bool(git("status", "--porcelain").strip())
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
