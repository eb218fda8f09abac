"""Runs pytest inside a host's checkout, named by ``SLIME_ROOT`` or ``VIME_ROOT``; without one its tests are skipped.

A process of its own per run: hosts keep singletons and event loops per process, and their tests replace modules.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from mem_agent.tests.helpers.patience import HANGS_AFTER_S

TESTS = Path(__file__).parents[1]
STUBS = TESTS.parent / "rehearsal" / "stubs"
# Its hypothesis plugin compiles a module at the very end, which CPython 3.11 fails at beside the hosts' threads.
_OPTIONS = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--color=no")
_NEEDED = ("msgpack", "platformdirs", "pylatexenc", "ray", "sglang_router", "wandb")


def named(variable: str, what: str, default: str = "/nowhere") -> Path:
    """What an environment variable names; skips the calling test where that is not there."""
    path = Path(os.environ.get(variable) or default)
    if not path.exists():
        pytest.skip(f"{variable} names no {what}")
    return path


@dataclass(frozen=True)
class Host:
    name: str
    contract_tests: int
    """Tests in its plugin-contract suites at the commit the pack was written against."""

    def checkout(self) -> Path:
        return named(f"{self.name.upper()}_ROOT", f"checkout of {self.name}")

    def pytest(self, *arguments: str, first: str = "", **environment: str) -> PytestRun:
        """Run pytest from the checkout's root, where the host's own tests expect to be; ``first`` leads its path.

        Skips the calling test where a package of the host's is missing.
        """
        root = self.checkout()
        if missing := [name for name in _NEEDED if find_spec(name) is None]:
            pytest.skip(f"{self.name.upper()}_ROOT: pip install --no-deps -r requirements/hosts.txt: no {missing[0]}")
        entries = [first, str(STUBS), str(root), os.environ.get("PYTHONPATH", "")]
        path = os.pathsep.join(filter(None, entries))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *_OPTIONS, *arguments], cwd=root, capture_output=True, text=True,
            env=os.environ | {"PYTHONPATH": path, "INSIDE_HOST": self.name} | environment, timeout=HANGS_AFTER_S)
        return PytestRun(done.stdout + done.stderr)


@dataclass(frozen=True)
class PytestRun:
    output: str

    @property
    def counts(self) -> dict[str, int]:
        """The summary's numbers: ``{"passed": 36}``."""
        summary = re.findall(r"^=*\s*(\d+ .*) in [\d.]+s", self.output, re.MULTILINE)
        counts = re.findall(r"(\d+) (passed|failed|skipped|errors?)", summary[-1] if summary else "")
        return {word: int(number) for number, word in counts}


HOSTS = (Host("slime", contract_tests=36), Host("vime", contract_tests=34))
