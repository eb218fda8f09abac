"""A reference model that two launches convert at once is there once, and whole, for both; one that is given up leaves
nothing.
"""

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


def test_the_launch_that_comes_second_takes_what_the_first_has_made(tmp_path, monkeypatch):
    folder, looked = tmp_path / "dist", reference.has_checkpoint

    def quicker(where):
        monkeypatch.setattr(reference, "has_checkpoint", looked)
        (folder / "release").mkdir(parents=True)
        (folder / TRACKER).write_text("release")
        return False

    monkeypatch.setattr(reference, "has_checkpoint", quicker)
    reference.convert_reference(converting(MAKE), "", folder, tmp_path, tmp_path / "log")
    assert looked(folder) and sorted(path.name for path in tmp_path.iterdir()) == ["dist", "log"]


def test_what_is_made_may_be_read_by_whom_folders_may(tmp_path):
    reference.convert_reference(converting(MAKE), "", tmp_path / "dist", tmp_path, tmp_path / "log")
    (tmp_path / "other").mkdir()
    assert (tmp_path / "dist").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_conversion_that_fails_is_one_line_with_what_it_said(tmp_path):
    log = tmp_path / "log"
    failing = converting("import os, sys; os.mkdir(sys.argv[1]); raise ValueError('no room')")
    with pytest.raises(MemAgentError, match=f"exited with code 1; log {log}: ValueError: no room; set TORCH_DIST to"):
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
