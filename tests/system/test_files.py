"""Files are the old or the new ones, links are followed, and one process at a time holds a folder."""

import os
import subprocess
import sys

import pytest

from mem_agent.system import files
from mem_agent.system.errors import MemAgentError


def test_a_write_that_fails_leaves_the_old_file_and_no_draft_and_a_link_stays_a_link(tmp_path):
    path, link = tmp_path / "metrics.json", tmp_path / "link"
    link.symlink_to(path.name)
    files.write_atomically(link, b"old")
    with pytest.raises(RuntimeError), files.replacing(path) as file:
        file.write(b"new")
        raise RuntimeError
    assert path.read_bytes() == b"old" and link.is_symlink() and len(os.listdir(tmp_path)) == 2
    files.remove(link)
    assert os.listdir(tmp_path) == [path.name]


def killed_inside(block, folder):
    """A process that holds ``block`` of files.py, with ``at`` for the folder: once it does, and once it is killed."""
    code = f"import sys; from pathlib import Path; from mem_agent.system.files import *; at = Path(sys.argv[1])\n" \
           f"with {block}: print('held', flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", code, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()
    yield


def test_a_second_process_is_refused_while_the_first_lives_and_not_after_a_kill(tmp_path):
    life = killed_inside("folder_lock(at)", tmp_path)
    next(life)
    with pytest.raises(MemAgentError, match="in use"), files.folder_lock(tmp_path):
        raise AssertionError
    next(life)
    with files.folder_lock(tmp_path):
        pass


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    [*_] = killed_inside("scratch_folder('weights-', at), replacing(at / 'x')", tmp_path)
    assert len(os.listdir(tmp_path)) == 2
    files.write_atomically(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"new"
    (tmp_path / "x").unlink()
    with files.scratch_folder("weights-", tmp_path) as folder:
        assert os.listdir(tmp_path) == [folder.name]
        with files.scratch_folder("weights-", tmp_path):
            assert folder.is_dir()  # of a process that lives
    assert os.listdir(tmp_path) == []
