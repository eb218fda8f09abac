"""A file that changed after it was written is named; the list of hashes is checked like what it lists."""

import errno
import hashlib
import logging
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.checkpoints.average import AverageError, average
from mem_agent.checkpoints.damage import DamagedCheckpoint
from mem_agent.checkpoints.hashes import HASHES, _of_text, check_hashes, write_hashes
from mem_agent.tests.helpers.tiny_model import make_tiny_model

FILES = {".hidden": b"a" * 100, "empty": b"", "with blank": b"\0\1", "ä": b"b"}


@pytest.fixture
def folder(tmp_path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "below").mkdir()
    write_hashes(tmp_path)
    return tmp_path


def test_whole_files_pass_and_sha256sum_agrees(folder):
    check_hashes(folder)
    (folder / "of somebody else").write_text("is not listed")
    check_hashes(folder)
    if shutil.which("sha256sum"):
        said = subprocess.run(["sha256sum", "--check", "--strict", HASHES], cwd=folder, capture_output=True, text=True)
        assert said.returncode == 0 and said.stdout.count(": OK\n") == len(FILES), said.stderr


@given(data=st.data())
def test_any_changed_byte_of_any_file_is_found_and_named(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("folder")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    write_hashes(folder)
    name = data.draw(st.sampled_from([HASHES, *(name for name, content in FILES.items() if content)]))
    content = bytearray((folder / name).read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    (folder / name).write_bytes(content)
    with pytest.raises(DamagedCheckpoint) as error:
        check_hashes(folder)
    assert str(error.value).startswith(f"{folder}: the checkpoint is damaged: {name}: is not as it was written")


HASH = hashlib.sha256(b"of another file").hexdigest()
OF_OTHERS = {
    "sha256sum": f"{HASH}  model.safetensors\n",
    "sha256sum --binary": f"{HASH} *model.safetensors\n",
    "files below": f"{HASH}  ./onnx/model.onnx\n",
    "capitals": f"{HASH.upper()}  model.safetensors\r\n",
    "md5sum": f"{HASH[:32]}  model.safetensors\n",
    "sha512sum": f"{HASH * 2}  model.safetensors\n",
    "an escaped name": f"\\{HASH}  a\\nb\n",
    "sha256sum --tag": f"SHA256 (model.safetensors) = {HASH}\n",
    "words first": f"# sums of release 3\n{HASH}  model.safetensors\n",
    "words alone": "see the page of the model",
}


@pytest.mark.parametrize("how", OF_OTHERS)
def test_a_list_of_somebody_else_is_not_taken_for_ours(tmp_path, caplog, how):
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / HASHES).write_text(OF_OTHERS[how])
    with caplog.at_level(logging.INFO, "mem_agent"):
        check_hashes(tmp_path)
    assert caplog.messages == [f"{tmp_path} has a SHA256SUMS of somebody else: its files are used without a check"]


@pytest.mark.parametrize("left", [0, 1, 2, 30, 66, 67, 100])
@pytest.mark.parametrize("kept", ["beginning", "zeros"])
def test_a_part_of_ours_is_damage_and_no_list_of_somebody_else(folder, left, kept):
    ours = (folder / HASHES).read_bytes()
    (folder / HASHES).write_bytes(ours[:left] if kept == "beginning" else bytes(left))
    with pytest.raises(DamagedCheckpoint, match="SHA256SUMS: is not as it was written"):
        check_hashes(folder)


def test_a_missing_file_is_named_before_the_others_are_read(folder, monkeypatch):
    (folder / "empty").unlink()
    monkeypatch.setattr("mem_agent.checkpoints.hashes._of_file", None)
    with pytest.raises(DamagedCheckpoint, match=r"empty: is missing$"):
        check_hashes(folder)


def test_a_disk_that_does_not_give_a_file_back_is_damage(folder, monkeypatch):
    def unreadable(path: Path) -> str:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr("mem_agent.checkpoints.hashes._of_file", unreadable)
    with pytest.raises(DamagedCheckpoint, match=r"\.hidden: the disk does not give it back$"):
        check_hashes(folder)


def test_hashes_that_lead_out_of_the_folder_are_refused(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret").write_text("x")
    write_hashes(tmp_path)
    text = (tmp_path / HASHES).read_text().partition("\n")[2].replace("secret", "../secret")
    (tmp_path / "inside" / HASHES).write_text(f"# {_of_text(text)}\n{text}")
    with pytest.raises(DamagedCheckpoint, match=r"SHA256SUMS: names '\.\./secret', outside of it"):
        check_hashes(tmp_path / "inside")


def test_averaging_refuses_weights_that_changed_and_not_a_card_that_was_edited(tmp_path):
    one, other = (make_tiny_model(tmp_path / name) for name in ("one", "other"))
    average([one, other], tmp_path / "mean")
    (tmp_path / "mean" / "README.md").write_text("mine")
    average([one, tmp_path / "mean"], tmp_path / "again")
    weights = tmp_path / "mean" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    with pytest.raises(AverageError, match=r"model\.safetensors: is not as it was written, .*or leave it out$"):
        average([one, tmp_path / "mean"], tmp_path / "never")
    assert not (tmp_path / "never").exists()
