"""``--require-hosts``: a test that lacks a checkout fails, where it otherwise skips."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.tests.conftest import HOSTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("option,outcome", [([], "skipped"), (["--require-hosts"], "failed")])
def test_a_missing_checkout(option, outcome):
    clean = {name: value for name, value in os.environ.items() if name not in HOSTS}
    command = [sys.executable, "-m", "pytest", "tests/hooks/test_hosts.py", "-k", "contract", *option]
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True)
    assert f" {outcome}" in done.stdout.splitlines()[-1] and "SLIME_ROOT" in done.stdout, done.stdout
    assert (done.returncode == 0) == (outcome == "skipped")
