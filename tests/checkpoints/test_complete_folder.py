"""What cannot be replaced is refused before anything is written, and stays as it was."""

from pathlib import Path

import pytest

from mem_agent.checkpoints.complete_folder import OutputRefused, check_free, complete_folder
from mem_agent.checkpoints.unreplaced import FolderReplaced, unreplaced


def write(output: Path, force: bool = True, made_of: tuple[Path, ...] = ()) -> None:
    with complete_folder(output, force=force, made_of=made_of) as temporary:
        (temporary / "new").touch()


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_link_stays_one_and_what_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "old").touch()
    (tmp_path / "out").symlink_to("real")
    for _ in range(2):
        write(tmp_path / "out")
        assert (tmp_path / "out").is_symlink() and below(tmp_path) == ["out", "real", "real/new"]


def test_a_link_to_nothing_leads_to_what_is_written(tmp_path):
    (tmp_path / "out").symlink_to("other disk")
    write(tmp_path / "out", force=False)
    assert below(tmp_path) == ["other disk", "other disk/new", "out"]


@pytest.mark.parametrize("force", [False, True])
def test_a_file_is_not_replaced(tmp_path, force):
    (tmp_path / "out").write_text("precious")
    with pytest.raises(OutputRefused, match=f"^{tmp_path}/out: is no folder and stays as it is; name another output$"):
        write(tmp_path / "out", force)
    assert (tmp_path / "out").read_text() == "precious"


def test_where_a_disk_is_mounted_nothing_is_replaced():
    shm = Path("/dev/shm")
    if not shm.is_mount():
        pytest.skip("no disk is mounted at /dev/shm")
    with pytest.raises(OutputRefused, match=r"^/dev/shm: something is mounted there"):
        check_free(shm, force=True)


@pytest.mark.parametrize("output", ["run", "run/iter_3", "link"])
def test_what_a_folder_is_made_of_is_not_replaced_by_it(tmp_path, output):
    source = tmp_path / "run" / "iter_3"
    source.mkdir(parents=True)
    (tmp_path / "link").symlink_to("run")
    with pytest.raises(OutputRefused, match=f"would replace {source}, of which it is made; name another output$"):
        write(tmp_path / output, made_of=(source,))
    assert below(tmp_path) == ["link", "run", "run/iter_3"]


def test_a_folder_beside_what_it_is_made_of_is_written(tmp_path):
    (tmp_path / "run" / "iter_3").mkdir(parents=True)
    write(tmp_path / "run" / "iter_3" / "hf", made_of=(tmp_path / "run" / "iter_3",))
    assert below(tmp_path / "run") == ["iter_3", "iter_3/hf", "iter_3/hf/new"]


def test_what_is_put_beside_what_is_read_is_no_change_of_it(tmp_path):
    (tmp_path / "model").touch()
    with unreplaced(tmp_path) as confirm:
        (tmp_path / "notes.txt").touch()
        (tmp_path / "hf").mkdir()
        confirm()


def test_a_change_is_seen_beside_a_link_to_nothing(tmp_path):
    (tmp_path / "model").touch()
    (tmp_path / "link").symlink_to("nothing")
    with unreplaced(tmp_path) as confirm:
        (tmp_path / "model").write_text("other")
        with pytest.raises(FolderReplaced):
            confirm()


@pytest.mark.parametrize("left", ["writing", "replaced"])
def test_a_link_under_a_drafts_name_goes_and_what_it_leads_to_stays(tmp_path, left):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "old").touch()
    (tmp_path / f".out.{left}").symlink_to("kept")
    write(tmp_path / "out")
    assert below(tmp_path) == ["kept", "kept/old", "out", "out/new"]
