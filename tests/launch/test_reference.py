"""A reference model is converted whole or not at all; a conversion that is given up leaves nothing."""

import os
import signal
import subprocess
import sys

import pytest

from mem_agent.checkpoints.folders import TRACKER
from mem_agent.launch import reference
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.patience import wait_for

MAKE = f"import pathlib, sys; d = pathlib.Path(sys.argv[1]); d.mkdir(); (d / {TRACKER!r}).write_text('release')"


def converting(code):
    return lambda output: [sys.executable, "-c", code, str(output)]


def test_a_converted_model_takes_its_place_whole(tmp_path):
    reference.convert_reference(converting(MAKE), "", tmp_path / "dist", tmp_path, tmp_path / "log")
    assert reference.has_checkpoint(tmp_path / "dist")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dist", "log"]


def test_a_conversion_that_fails_is_one_line_with_what_it_said(tmp_path):
    log = tmp_path / "log"
    failing = converting("import os, sys; os.mkdir(sys.argv[1]); raise ValueError('no room')")
    with pytest.raises(MemAgentError, match="ValueError: no room; set TORCH_DIST to"):
        reference.convert_reference(failing, "", tmp_path / "dist", tmp_path, log)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_launcher_that_is_killed_takes_its_conversion_along(tmp_path):
    """A cluster's launcher would otherwise leave gigabytes, and two conversions where it is started again."""
    code = ("import pathlib, sys; from mem_agent.launch.reference import convert_reference as convert\n"
            "here = pathlib.Path(sys.argv[1]); slow = 'import os, sys, time; os.mkdir(sys.argv[1]); time.sleep(600)'\n"
            "convert(lambda output: [sys.executable, '-c', slow, str(output)], '', here / 'dist', here, here / 'log')")
    launcher = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    wait_for(lambda: list(tmp_path.glob(".dist.writing-*/dist")), launcher)
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    wait_for(lambda: not list(tmp_path.glob(".dist.*")))
