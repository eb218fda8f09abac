"""Damage to any file of a checkpoint is known before it is used; a run goes on from the newest whole one before."""

import logging
import pickle
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException

from mem_agent.checkpoints import checkpoint, folders
from mem_agent.checkpoints.convert import main as convert
from mem_agent.checkpoints.damage import DamagedCheckpoint
from mem_agent.checkpoints.folders import CheckpointError
from mem_agent.checkpoints.hashes import HASHES, write_hashes
from mem_agent.checkpoints.whole import newest_whole, read_checkpoint, whole_before
from mem_agent.tests.helpers.attack import Attack
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.trainer_steps import make_config, make_rows, train
from mem_agent.training.trainer import Trainer

STATE = {"rollout": 7}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory) -> Path:
    """A checkpoint after one step."""
    trainer = Trainer(make_config(model))
    train(trainer, make_rows(), 1)
    return checkpoint.save(tmp_path_factory.mktemp("run"), 7, trainer, STATE)


@pytest.fixture(scope="module")
def resuming(model) -> Trainer:
    return Trainer(make_config(model))


def copies(saved: Path, save_path: Path, *iterations: int) -> None:
    for iteration in iterations:
        shutil.copytree(saved, save_path / f"iter_{iteration:07d}")
    (save_path / folders.TRACKER).write_text(str(max(iterations)))


# --- every file, every damage ----------------------------------------------------------------------------------------


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def as_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def flipped(share: float) -> Callable[[Path], None]:
    def flip(file: Path) -> None:
        content = bytearray(file.read_bytes())
        start = int(len(content) * share)
        content[start : start + 8] = bytes(byte ^ 0xFF for byte in content[start : start + 8])
        file.write_bytes(content)

    return flip


DAMAGES = {"missing": Path.unlink, "empty": empty, "cut": cut, "a folder": as_folder}
DAMAGES |= {f"flipped at {n / 10}": flipped(n / 10) for n in range(10)}
FILES = [".metadata", "__0_0.distcp", "__0_1.distcp", "common.pt", "metadata.json", HASHES]


def test_these_are_all_files_of_a_checkpoint(saved):
    assert sorted(path.name for path in saved.iterdir()) == sorted(FILES)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_run_goes_on_from_the_newest_whole_checkpoint_before_the_damaged(saved, tmp_path, caplog, name, damage):
    copies(saved, tmp_path, 2, 3, 5, 7, 9)
    (tmp_path / folders.TRACKER).write_text("7")
    flipped(0.5)(tmp_path / "iter_0000005" / "__0_0.distcp")
    DAMAGES[damage](tmp_path / "iter_0000007" / name)
    with caplog.at_level(logging.INFO, "mem_agent"):
        found = newest_whole(tmp_path)
    if (name, damage) == (HASHES, "missing"):  # as a checkpoint of another host, or an older version, has it
        assert found == tmp_path / "iter_0000007"
        assert caplog.messages == [f"{found} has no SHA256SUMS: its files are used without a check"]
        return
    assert found == tmp_path / "iter_0000003"
    (said,) = caplog.messages
    assert said.startswith(f"{tmp_path / 'iter_0000007'}: the checkpoint is damaged: {name}: ") and "\n" not in said
    assert said.endswith(f"; going on from {found}, the newest whole checkpoint before it")
    with pytest.raises(CheckpointError, match=rf"iter_0000007: .* {name}: .*; {found} is whole$"):
        newest_whole(tmp_path / "iter_0000007")


def test_what_is_loaded_is_the_whole_one(saved, resuming, tmp_path, caplog):
    copies(saved, tmp_path, 3, 7)
    flipped(0.4)(tmp_path / "iter_0000007" / "__0_0.distcp")
    assert checkpoint.load(tmp_path, resuming) == STATE
    assert "__0_0.distcp: is not as it was written" in caplog.text and "iter_0000003, the newest whole" in caplog.text
    with pytest.raises(CheckpointError, match=r"__0_0\.distcp: .*iter_0000003 is whole$"):
        checkpoint.load(tmp_path / "iter_0000007", resuming)


def test_damage_without_a_whole_checkpoint_before_it_is_one_line(saved, resuming, tmp_path):
    copies(saved, tmp_path, 6, 7, 8)
    (tmp_path / folders.TRACKER).write_text("7")
    for iteration in (6, 7):
        cut(tmp_path / f"iter_{iteration:07d}" / "__0_0.distcp")
    with pytest.raises(CheckpointError, match=r"iter_0000007.*; no checkpoint before it is whole; .* start anew in"):
        checkpoint.load(tmp_path, resuming)


def test_whoever_uses_weights_is_told_of_damage_and_of_a_whole_checkpoint(saved, model, tmp_path, capsys):
    copies(saved, tmp_path, 3, 7)
    flipped(0.4)(tmp_path / "iter_0000007" / "__0_0.distcp")
    older = tmp_path / "iter_0000003"
    assert convert(["--input", str(tmp_path), "--hf", str(model), "--output", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "iter_0000007: the checkpoint is damaged: __0_0.distcp: is not as" in said and said.count("\n") == 1
    back = f"convert that, or write 3 into {tmp_path / folders.TRACKER} and train again, which makes iter_0000007 anew"
    assert said.endswith(f"; {older} is whole: {back}\n") and not (tmp_path / "out").exists()
    with pytest.raises(DamagedCheckpoint, match=f"__0_0.distcp: .* {older} is whole: set TORCH_DIST={older}$"):
        Trainer(make_config(model, torch_dist=str(tmp_path)))


# --- without hashes, as older versions wrote them --------------------------------------------------------------------


UNHASHED = [
    ("__0_0.distcp", "missing", "__0_0.distcp: is missing"),
    ("__0_0.distcp", "empty", "__0_0.distcp: has 0 of at least "),
    ("__0_0.distcp", "cut", "__0_0.distcp: has "),
    (".metadata", "missing", ".metadata: is missing"),
    *((".metadata", damage, ".metadata: ") for damage in DAMAGES if damage.startswith(("empty", "cut"))),
    # A flipped name may be one that is refused, which is not called damage.
    *((".metadata", damage, ".metadata") for damage in DAMAGES if damage.startswith("flipped")),
    ("metadata.json", "missing", "metadata.json: is missing"),
    *(("metadata.json", damage, "metadata.json: does not say torch_dist") for damage in ("empty", "cut")),
    *(("common.pt", damage, "common.pt: ") for damage in DAMAGES),
]


@pytest.mark.parametrize(("name", "damage", "problem"), UNHASHED, ids=[f"{name} {how}" for name, how, _ in UNHASHED])
def test_what_shows_without_hashes_is_known_too(saved, tmp_path, caplog, name, damage, problem):
    copies(saved, tmp_path, 3, 7)
    for iteration in (3, 7):
        (tmp_path / f"iter_{iteration:07d}" / HASHES).unlink()
    DAMAGES[damage](tmp_path / "iter_0000007" / name)
    assert newest_whole(tmp_path) == tmp_path / "iter_0000003"
    (said,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said.startswith(f"{tmp_path / 'iter_0000007'}: ") and problem in said and "\n" not in said


def every_zip_broken(file: Path) -> None:
    """The tensors are zip files one after the other."""
    file.write_bytes(file.read_bytes().replace(b"PK\5\6", b"KP\5\6"))


def every_zip_of_no_version(file: Path) -> None:
    """As its member ``version`` says."""
    content, count = re.subn(rb"(/versionFB..Z*)3\n", rb"\g<1>0\n", file.read_bytes(), flags=re.DOTALL)
    assert count
    file.write_bytes(content)


def test_tensors_that_torch_did_not_write_are_damage_without_hashes(saved, tmp_path, caplog):
    copies(saved, tmp_path, 3, 7)
    (tmp_path / "iter_0000007" / HASHES).unlink()
    every_zip_broken(tmp_path / "iter_0000007" / "__0_0.distcp")
    assert newest_whole(tmp_path) == tmp_path / "iter_0000003"
    assert "iter_0000007: the checkpoint is damaged: __0_0.distcp, '" in caplog.text
    assert ": does not end as a zip file of torch's; going on from " in caplog.text


def test_what_only_megatrons_reading_shows_is_one_line(saved, resuming, tmp_path):
    assert not issubclass(CheckpointException, Exception)
    copies(saved, tmp_path, 3, 7)
    (tmp_path / "iter_0000007" / HASHES).unlink()
    every_zip_of_no_version(tmp_path / "iter_0000007" / "__0_0.distcp")
    with pytest.raises(CheckpointError, match=r"cannot be read: .*version") as error:
        checkpoint.load(tmp_path, resuming)
    older, tracker = tmp_path / "iter_0000003", tmp_path / folders.TRACKER
    assert str(error.value).endswith(f"; to go on from {older}, write its number into {tracker}")


def pairs() -> tuple:
    made: tuple = ()
    for _ in range(30):
        made = made, made
    return made


@pytest.mark.parametrize("change, said", [
    (lambda common: {"steps": "many"}, r"common\.pt: steps are no number"),
    (lambda common: {"steps": -1}, r"common\.pt: steps are no number"),
    (lambda common: {"steps": 2**1100}, r"common\.pt: steps are no number"),
    (lambda common: {"rng_state": common["rng_state"] | {"numpy": (*common["rng_state"]["numpy"][:2], 10**9, 0, 0.0)}},
     "rng_state is at number 1000000000 of 624"),
])
def test_numbers_that_are_none_are_one_line(saved, resuming, tmp_path, change, said):
    copies(saved, tmp_path, 3, 7)
    file = tmp_path / "iter_0000007" / "common.pt"
    common = torch.load(file, weights_only=False)
    torch.save(common | change(common), file)
    write_hashes(file.parent)
    with pytest.raises(CheckpointError, match=rf"{said}; to go on from .*iter_0000003, write"):
        checkpoint.load(tmp_path, resuming)


@pytest.mark.parametrize("name", ["model", "args", "rng_state", "more"])
def test_a_value_that_repeats_another_is_not_walked_through(saved, tmp_path, name):
    """megatron-core shows values of common.pt in its errors, torch copies them, random shows them."""
    copies(saved, tmp_path, 3, 7)
    file = tmp_path / "iter_0000007" / "common.pt"
    torch.save(torch.load(file, weights_only=False) | {name: {"a": [pairs()]}}, file)
    write_hashes(file.parent)
    assert newest_whole(tmp_path) == tmp_path / "iter_0000003"
    with pytest.raises(DamagedCheckpoint, match=r"common\.pt: repeats what is in it until that is longer"):
        read_checkpoint(file.parent)


def test_a_checkpoint_of_another_host_is_no_damage(saved, resuming, tmp_path):
    copies(saved, tmp_path, 3, 7)
    folder = tmp_path / "iter_0000007"
    for common in ({"iteration": 7}, {"args": subprocess.Popen}):
        torch.save(common, folder / "common.pt")
        write_hashes(folder)
        with pytest.raises(CheckpointError, match="was not written by this host; to start from its weights") as error:
            checkpoint.load(tmp_path, resuming)
        assert "damaged" not in str(error.value)
    assert whole_before(folder) == tmp_path / "iter_0000003" and whole_before(tmp_path / "iter_0000003") is None


# --- what would run code ---------------------------------------------------------------------------------------------


@pytest.fixture
def attacked(saved, tmp_path) -> Iterator[Path]:
    """A checkpoint with right hashes whose ``common.pt`` makes the file ``victim``."""
    copies(saved, tmp_path, 7)
    folder, victim = tmp_path / "iter_0000007", tmp_path / "victim"
    torch.save({"host_state": Attack(victim)}, folder / "common.pt")
    write_hashes(folder)
    torch.load(folder / "common.pt", weights_only=False)
    assert victim.exists(), "the attack itself works"
    victim.unlink()
    yield folder
    assert not victim.exists()


@pytest.mark.parametrize("forced", ["0", "1"])
def test_common_pt_is_read_as_weights_only_whatever_the_environment_says(attacked, monkeypatch, resuming, forced):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", forced)
    with pytest.raises(CheckpointError, match="was not written by this host"):
        read_checkpoint(attacked)
    with pytest.raises(CheckpointError, match="was not written by this host"):
        checkpoint.load(attacked, resuming)


def rewritten(file: Path, change: Callable[[str, bytes], bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(file) as old:
        content = {name: change(name, old.read(name)) for name in old.namelist()}
    with zipfile.ZipFile(file, "w", compression) as new:
        for name, data in content.items():
            new.writestr(name, data)


def test_common_pt_takes_no_more_time_or_memory_than_it_is_long(saved, tmp_path):
    """Twice as many pairs in each pair would be hashed for years, ten MB may unpack to as many GB."""
    copies(saved, tmp_path, 7)
    folder, pairs = tmp_path / "iter_0000007", b"}" + b")" + b"".join(b"q%ch%c\x86" % (n, n) for n in range(1, 21))
    read_checkpoint(folder)
    rewritten(folder / "common.pt", lambda name, old: old[:2] + pairs + b"Ns0" + old[2:] if ".pkl" in name else old)
    with pytest.raises(DamagedCheckpoint, match=r"common\.pt: has parts that describe no tensor$"):
        read_checkpoint(folder)
    shutil.copy(saved / "common.pt", folder)
    rewritten(folder / "common.pt", lambda name, data: data + bytes(2**16) * ("version" in name), zipfile.ZIP_DEFLATED)
    with pytest.raises(DamagedCheckpoint, match=r"common\.pt: unpacks to more than its length$"):
        read_checkpoint(folder)


def test_a_plain_pickle_as_common_pt_does_not_run(attacked):
    (attacked / "common.pt").write_bytes(pickle.dumps(Attack(attacked.parent / "victim")))
    write_hashes(attacked)
    with pytest.raises(DamagedCheckpoint, match=r"common\.pt: "):
        read_checkpoint(attacked)
