"""One writer of a folder: the second is told who and what to do, and a file system without locks stops nobody."""

import errno
import fcntl
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from mem_agent.system.atomic_file import replacing
from mem_agent.system.errors import MemAgentError
from mem_agent.system.file_lock import lock_dir
from mem_agent.system.save_lock import save_lock


def hold(folder):
    return lock_dir(folder, ".lock", RuntimeError, busy="somebody writes there", other="take another")


def test_a_folder_is_made_held_and_given_back(tmp_path):
    folder = tmp_path / "new" / "folder"
    with hold(folder), pytest.raises(RuntimeError, match="folder: somebody writes there"), hold(folder):
        pass
    with hold(folder):
        pass


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(RuntimeError, match=r"cannot be written \(Not a directory\); take another"),
        hold(tmp_path / "file" / "x"),
    ):
        pass


def make_folder(lock: Path) -> None:
    lock.mkdir()  # as one of another user would be, which root may open


def make_link(lock: Path) -> None:
    lock.with_name("precious").write_text("kept")
    lock.symlink_to("precious")


@pytest.mark.parametrize("make,why", [
    (make_folder, "Is a directory"), (make_link, "Too many levels of symbolic links"),
    (os.mkfifo, "No such device or address"),
])
def test_a_lock_file_that_is_none_is_named_and_stays(tmp_path, make, why):
    make(tmp_path / ".lock")
    with pytest.raises(RuntimeError, match=rf"/\.lock: cannot be written \({why}\); take another"), hold(tmp_path):
        pass
    assert (tmp_path / ".lock").lstat() and all(file.read_text() == "kept" for file in tmp_path.glob("precious"))


@pytest.mark.parametrize("folder,lock", [(0o755, 0o600), (0o775, 0o660), (0o2770, 0o660)])
def test_a_lock_is_for_those_who_may_write_in_the_folder(folder, lock, tmp_path):
    tmp_path.chmod(folder)
    before = os.umask(0)
    try:
        with hold(tmp_path):
            assert (tmp_path / ".lock").stat().st_mode & 0o777 == lock
    finally:
        os.umask(before)


def test_without_locks_work_goes_on(tmp_path, monkeypatch):
    tried = []

    def no_locks(*_):
        tried.append(len(tried))
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with hold(tmp_path), hold(tmp_path):
        assert tried == [0, 1]


def test_a_second_run_in_a_save_path_is_refused(tmp_path, monkeypatch):
    with (
        save_lock(tmp_path),
        pytest.raises(MemAgentError, match=f"SAVE_PATH={tmp_path}: is in use by another run"),
        save_lock(tmp_path),
    ):
        pass
    monkeypatch.setenv("RANK", "1")
    with hold(tmp_path), save_lock(tmp_path):
        pass


def test_what_killed_runs_have_left_in_a_save_path_is_removed_by_the_next(tmp_path, monkeypatch):
    left = tmp_path / ".metrics.jsonl.17.tmp"
    others = {".metrics.jsonl", ".notes.tmp", "metrics.17.tmp"}
    for path in (left, *(tmp_path / name for name in others)):
        path.touch()
    with replacing(tmp_path / "living") as file:
        with save_lock(tmp_path):
            assert not left.exists()
            left.touch()
            monkeypatch.setenv("RANK", "1")
            with save_lock(tmp_path):
                assert left.exists()
        file.write(b"whole")
    assert {path.name for path in tmp_path.iterdir()} == {*others, left.name, "living"}


def test_the_lock_file_goes_with_the_block(tmp_path):
    with hold(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    assert not any(tmp_path.iterdir())


def test_a_lock_file_that_its_holder_removed_and_a_third_made_again_is_not_held_twice(tmp_path, monkeypatch):
    flock, third = fcntl.flock, ExitStack()

    def between(file, how):
        monkeypatch.setattr(fcntl, "flock", flock)
        (tmp_path / ".lock").unlink()
        third.enter_context(hold(tmp_path))
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", between)
    with third, pytest.raises(RuntimeError, match="somebody writes there"), hold(tmp_path):
        pass


def test_a_file_system_that_makes_inodes_up_locks_as_well(tmp_path, monkeypatch):
    monkeypatch.setattr(os.path, "samestat", lambda *_: False)
    with hold(tmp_path), pytest.raises(RuntimeError, match="somebody writes there"), hold(tmp_path):
        pass
