"""A folder goes with its owner; one whose owner was killed goes when the next is made, and one that is held never."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.system import own_folder as module
from mem_agent.system.own_folder import machine, made_ours, own_folder

OWNER = """
import sys
from pathlib import Path
from mem_agent.system.own_folder import own_folder
print(own_folder(Path(sys.argv[1]), "run-").path, flush=True)
sys.stdin.read()
"""


def owner(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdin=-1, stdout=-1, text=True)


def test_the_next_one_removes_what_a_killed_owner_left_and_nothing_else(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "run-unmarked").mkdir()
    (tmp_path / f"run-{machine()}-file").touch()
    (tmp_path / f"run-{machine()}-link").symlink_to(tmp_path / "other")
    others = {path.name for path in tmp_path.iterdir()}
    with owner(tmp_path) as living, owner(tmp_path) as killed:
        kept, left = (Path(process.stdout.readline().strip()) for process in (living, killed))
        (left / "model.safetensors").write_text("x")
        killed.kill()
        killed.wait()
        assert left.is_dir()
        made = own_folder(tmp_path, "run-")
        assert not left.exists() and kept.is_dir()
        living.communicate("")
    assert {path.name for path in tmp_path.iterdir()} == {*others, kept.name, made.path.name}
    made.remove()
    assert not made.path.exists()
    own_folder(tmp_path, "run-").remove()
    assert {path.name for path in tmp_path.iterdir()} == others


def test_a_folder_is_removed_twice_and_two_of_one_process_do_not_end_each_other(tmp_path):
    first, second = own_folder(tmp_path, "run-"), own_folder(tmp_path, "run-")
    assert first.path.is_dir() and second.path.is_dir()
    first.remove()
    first.remove()
    assert list(tmp_path.iterdir()) == [second.path]
    second.remove()


def test_a_folder_that_was_removed_is_made_again_and_is_held_as_before(tmp_path):
    owned = own_folder(tmp_path, "run-")
    (owned.path / "kept").touch()
    owned.make_again()
    assert (owned.path / "kept").exists()
    for again in (lambda: None, owned.path.mkdir):  # by somebody else, under its name
        shutil.rmtree(owned.path)
        again()
        owned.make_again()
        assert owned.path.stat().st_mode & 0o777 == 0o700
        own_folder(tmp_path, "run-").remove()
        assert owned.path.is_dir(), "who comes next takes it for abandoned"
    owned.remove()
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("take", [Path.mkdir, Path.touch, lambda path: path.symlink_to(path.parent)])
def test_a_name_that_another_user_has_taken_meanwhile_is_not_used(tmp_path, monkeypatch, take):
    owned = own_folder(tmp_path, "run-")
    owned.path.rmdir()
    take(owned.path)
    monkeypatch.setattr(module.os, "geteuid", lambda: owned.path.lstat().st_uid + 1)
    with pytest.raises(FileExistsError, match="another user's lies in its place"):
        owned.make_again()


def test_a_folder_of_another_machine_stays_whose_lock_may_not_be_seen_here(tmp_path, monkeypatch):
    with monkeypatch.context() as there:
        there.setattr(module, "machine", lambda: "b00t")
        elsewhere = own_folder(tmp_path, "run-")
    os.close(elsewhere._lock)
    own_folder(tmp_path, "run-").remove()
    assert list(tmp_path.iterdir()) == [elsewhere.path]


def test_the_machine_is_told_by_its_boot_or_its_name(tmp_path, monkeypatch):
    found = [machine()]
    for boot in ("a", "b", None):
        monkeypatch.setattr(module, "_BOOT", tmp_path / str(boot))
        if boot:
            (tmp_path / boot).write_text(boot)
        found.append(machine())
    assert len(set(found)) == 4 and {len(letters) for letters in found} == {4}


def test_a_kept_folder_is_ours_or_not_used(tmp_path, monkeypatch):
    """In a folder where all may write, another user can be the first to make what has a known name."""
    kept, foreign = tmp_path / "kept", tmp_path / "foreign"
    assert made_ours(kept) and kept.stat().st_mode & 0o777 == 0o700
    kept.chmod(0o777)
    assert made_ours(kept) and kept.stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(kept)
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent")
    assert not any(made_ours(tmp_path / name) for name in ("link", "file", "nowhere"))
    foreign.mkdir(mode=0o777)
    monkeypatch.setattr(module.os, "geteuid", lambda: foreign.stat().st_uid + 1)
    assert not made_ours(foreign)
