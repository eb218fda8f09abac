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
# Its hypothesis plugin compiles a module at the very end, which CPython 3.11 fails at beside the hosts' threads.
_OPTIONS = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--color=no")
_NEEDED = ("msgpack", "platformdirs", "pylatexenc", "ray", "sglang_router", "wandb")


@dataclass(frozen=True)
class Host:
    name: str
    contract_tests: int
    """Tests in its plugin-contract suites at the commit the pack was written against."""

    @property
    def variable(self) -> str:
        return f"{self.name.upper()}_ROOT"

    def root(self) -> Path:
        """The checkout; skips the calling test where there is none or where a package is missing."""
        folder = os.environ.get(self.variable)
        if not folder:
            pytest.skip(f"{self.variable} names no checkout of {self.name}")
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            pytest.skip(f"{self.variable}: no module {missing[0]}: pip install --no-deps -r requirements/hosts.txt")
        return Path(folder)

    def megatron(self) -> str:
        """Megatron-LM with the hosts' patch; skips the calling test where none is named."""
        folder = os.environ.get("MEGATRON_ROOT")
        if not folder:
            pytest.skip("MEGATRON_ROOT names no Megatron-LM with docker/patch/latest/megatron.patch of the host")
        return folder

    def pytest(self, *arguments: str, first: str = "", **environment: str) -> PytestRun:
        """Run pytest from the checkout's root, where the host's own tests expect to be; ``first`` leads its path."""
        root = self.root()
        entries = [first, str(TESTS.parent / "rehearsal" / "stubs"), str(root), os.environ.get("PYTHONPATH", "")]
        path = [entry for entry in entries if entry]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *_OPTIONS, *arguments],
            cwd=root,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path), "INSIDE_HOST": self.name} | environment,
            capture_output=True,
            text=True,
            timeout=HANGS_AFTER_S,
        )
        return PytestRun(done.stdout + done.stderr)


@dataclass(frozen=True)
class PytestRun:
    output: str

    @property
    def counts(self) -> dict[str, int]:
        """The summary's numbers: ``{"passed": 36}``."""
        summary = re.findall(r"^=*\s*(\d+ .*) in [\d.]+s", self.output, re.MULTILINE)
        assert summary, self.output
        counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", summary[-1])}
        return {word: number for word, number in counts.items() if not word.startswith("warning")}


HOSTS = (Host("slime", contract_tests=36), Host("vime", contract_tests=34))
