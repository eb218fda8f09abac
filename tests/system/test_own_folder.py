"""A folder goes with its owner; one whose owner was killed goes when the next is made, and one that is held never."""

import subprocess
import sys
from pathlib import Path

from mem_agent.system.own_folder import own_folder

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
    (tmp_path / "run-file").touch()
    (tmp_path / "run-link").symlink_to(tmp_path / "other")
    with owner(tmp_path) as living, owner(tmp_path) as killed:
        kept, left = (Path(process.stdout.readline().strip()) for process in (living, killed))
        (left / "model.safetensors").write_text("x")
        killed.kill()
        killed.wait()
        assert left.is_dir()
        made = own_folder(tmp_path, "run-")
        assert not left.exists() and kept.is_dir()
        living.communicate("")
    assert {path.name for path in tmp_path.iterdir()} == {"other", "run-file", "run-link", kept.name, made.path.name}
    made.remove()
    assert not made.path.exists()
    own_folder(tmp_path, "run-").remove()
    assert {path.name for path in tmp_path.iterdir()} == {"other", "run-file", "run-link"}


def test_a_folder_is_removed_twice_and_two_of_one_process_do_not_end_each_other(tmp_path):
    first, second = own_folder(tmp_path, "run-"), own_folder(tmp_path, "run-")
    assert first.path.is_dir() and second.path.is_dir()
    first.remove()
    first.remove()
    assert list(tmp_path.iterdir()) == [second.path]
    second.remove()
