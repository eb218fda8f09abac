"""Files are the old or the new ones, links are followed, and one process at a time holds a folder."""

import os
import subprocess
import sys

import pytest

from mem_agent.system.errors import MemAgentError
from mem_agent.system.files import (
    append_whole,
    folder_lock,
    remove,
    remove_drafts,
    replacing,
    scratch_folder,
    write_atomically,
)


def test_a_write_that_fails_leaves_the_old_file_and_no_draft(tmp_path):
    path = tmp_path / "metrics.json"
    write_atomically(path, b"old")
    with pytest.raises(RuntimeError), replacing(path) as file:
        file.write(b"new")
        raise RuntimeError
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["metrics.json"]


def test_a_link_stays_a_link_and_what_it_leads_to_is_written(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "results.jsonl").write_bytes(b"old")
    link = tmp_path / "results.jsonl"
    link.symlink_to("disk/results.jsonl")
    write_atomically(link, b"new")
    assert link.is_symlink() and (tmp_path / "disk" / "results.jsonl").read_bytes() == b"new"


def test_a_line_is_appended_whole_or_not_at_all(tmp_path):
    class Full:
        """A file on a disk that has room for three more bytes."""

        def __init__(self, file):
            self.file, self.name = file, file.name
            self.fileno, self.truncate = file.fileno, file.truncate

        def write(self, content):
            if self.file.tell() > 6:
                raise OSError(28, "No space left on device")
            return self.file.write(content[:3])

    path = tmp_path / "rows.jsonl"
    with path.open("ab", buffering=0) as file:
        append_whole(file, b"line1\n")
        with pytest.raises(MemAgentError, match=r"rows\.jsonl"):
            append_whole(Full(file), b"line2\n")
    assert path.read_bytes() == b"line1\n"


HOLD = "import sys; from pathlib import Path; from mem_agent.system.files import folder_lock\n" \
       "with folder_lock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"


def test_a_second_process_is_refused_while_the_first_lives_and_not_after_a_kill(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(MemAgentError, match="in use"), folder_lock(tmp_path):
        raise AssertionError
    holder.kill()
    holder.communicate()
    with folder_lock(tmp_path):
        pass


MAKE = "import os, sys; from pathlib import Path; from mem_agent.system.files import replacing, scratch_folder\n" \
       "with scratch_folder('weights-', Path(sys.argv[1])), replacing(Path(sys.argv[1], 'x')): os.kill(os.getpid(), 9)"


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    subprocess.run([sys.executable, "-c", MAKE, tmp_path], check=False)
    assert len(os.listdir(tmp_path)) == 2
    remove_drafts(tmp_path)
    with scratch_folder("weights-", tmp_path) as folder:
        assert os.listdir(tmp_path) == [folder.name]
        with scratch_folder("weights-", tmp_path):
            assert folder.is_dir()  # of a process that lives
    assert os.listdir(tmp_path) == []


def test_remove_takes_a_link_and_leaves_what_it_leads_to(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to("kept")
    for name in ("link", "absent"):
        remove(tmp_path / name)
    assert os.listdir(tmp_path) == ["kept"]
