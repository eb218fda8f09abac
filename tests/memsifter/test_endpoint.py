"""Engines of a stage: there for as long as they are asked, with their log named where they do not start."""

import os
import sys

import pytest

from mem_agent.memsifter import endpoint
from mem_agent.memsifter.endpoint import own_engines
from mem_agent.system.processes import FleetError
from mem_agent.tests.helpers.patience import wait_for

SERVES = """
import os, sys, time
from pathlib import Path
Path(sys.argv[1] + ".tmp").write_text(f"http://127.0.0.1:1/{os.environ['ENGINE_MAX_LEN']}/{os.getpid()}")
os.replace(sys.argv[1] + ".tmp", sys.argv[1])
time.sleep(600)
"""


class Left:
    """A run with a row that is left."""

    def wanted(self):
        return {"row"}


@pytest.fixture
def command(monkeypatch):
    """Stands in for ``mem-agent serve-engines``."""
    def stand_in(script):
        monkeypatch.setattr(endpoint, "python_module", lambda *words: [sys.executable, "-c", script, words[-1]])

    return stand_in


def test_they_end_with_the_block(command, tmp_path):
    command(SERVES)
    with own_engines(tmp_path / "model", 512, tmp_path, [Left()]) as url:
        *_, length, pid = url.split("/")
        assert length == "512" and os.path.exists(f"/proc/{pid}")
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"))


def test_engines_that_do_not_start_name_their_log(command, tmp_path):
    command("raise SystemExit('no room')")
    engines = own_engines(tmp_path / "model", 512, tmp_path, [Left()])
    with pytest.raises(FleetError, match=r"serve-engines\.log"), engines:
        pass
