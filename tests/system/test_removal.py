"""Of a link the link goes, and what cannot go is told."""

import shutil

import pytest

from mem_agent.system.removal import remove, remove_or_tell


@pytest.fixture
def kept(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "weights").write_text("large")
    return tmp_path / "kept"


def test_what_a_link_leads_to_stays(tmp_path, kept):
    for target in ("kept", "kept/weights", "nothing", "link"):
        (tmp_path / "link").symlink_to(target)
        remove(tmp_path / "link")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(kept)
    remove(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == [kept] and (kept / "weights").read_text() == "large"


def test_files_and_folders_go_and_nothing_is_nothing(tmp_path, kept):
    remove(kept / "weights")
    remove(kept / "weights")
    remove(kept)
    remove(kept / "weights")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_removed_is_a_warning_that_names_it(kept, caplog, monkeypatch):
    def refused(path):
        raise PermissionError(1, "Operation not permitted", str(path / "weights"))

    monkeypatch.setattr(shutil, "rmtree", refused)
    remove_or_tell(kept)
    said = f"[Errno 1] Operation not permitted: '{kept}/weights'"
    assert caplog.messages == [f"{kept} could not be removed ({said}); remove it"] and kept.is_dir()
