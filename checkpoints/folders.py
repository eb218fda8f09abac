"""The checkpoints in a folder: which there are, which one a run continues from, which are kept. Needs no torch.

A run continues from the one that the tracker names, written last (``checkpoint.py``); a folder that no tracker names
holds no complete checkpoint. People edit the tracker as well, to set a run back.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..system.errors import MemAgentError
from ..system.files import folder_lock, naming, remove

TRACKER = "latest_checkpointed_iteration.txt"
"""Megatron's own name and content: an iteration's number, or ``release`` for a model that no training has written."""


class CheckpointError(MemAgentError):
    """A checkpoint could not be written or read: the message names the path, the cause and the remedy."""


class DamagedCheckpoint(CheckpointError):
    """A file of a checkpoint cannot be read: the message names the folder and the cause."""


def damaged(folder: str | Path, file: str, problem: str) -> DamagedCheckpoint:
    return DamagedCheckpoint(f"{folder}: the checkpoint is damaged: {file}: {problem}")


class OutputRefused(MemAgentError):
    """Something lies where a folder would be written, or another run writes there."""


def tracked(save_path: str | Path) -> str | None:
    """What the tracker of ``save_path`` names: the number of a checkpoint, or ``release``; None without a tracker."""
    tracker = Path(save_path) / TRACKER
    if not tracker.is_file():
        return None
    text = tracker.read_text(errors="replace").strip()
    if text != "release" and re.fullmatch(r"[0-9]{1,18}", text) is None:
        raise CheckpointError(f"{tracker} holds {text[:40]!r}; write the number of a checkpoint{_numbers(save_path)}")
    return text


def latest(save_path: str | Path) -> Path | None:
    """The folder that the tracker of ``save_path`` names (``iter_*`` or ``release``), or None without a tracker."""
    text = tracked(save_path)
    if text is None:
        return None
    folder = Path(save_path) / ("release" if text == "release" else f"iter_{int(text):07d}")
    if not folder.is_dir():
        raise CheckpointError(
            f"{Path(save_path) / TRACKER} names {folder.name}, which is not there; "
            f"write a good number into it{_numbers(save_path)}"
        )
    return folder


def newest_of_run(save_path: str | Path) -> Path | None:
    """What a run goes on from: what the tracker names, or without one the newest that is there.

    The first checkpoint of a run that is killed has no tracker yet; others lose it when they are copied.
    """
    return latest(save_path) or next(reversed(numbered(save_path)), None)


def is_numbered(folder: Path) -> bool:
    return re.fullmatch(r"iter_[0-9]{7,18}", folder.name) is not None


def number_of(folder: Path) -> int:
    """The rollout after which a checkpoint of a run was written."""
    if not is_numbered(folder):
        raise CheckpointError(
            f"{folder} is a converted model, not a checkpoint of a run; set another SAVE_PATH, and TORCH_DIST to this "
            "folder to start from its weights"
        )
    return int(folder.name.removeprefix("iter_"))


def numbered(save_path: str | Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted((f for f in Path(save_path).glob("iter_*") if is_numbered(f)), key=number_of)


def before(folder: Path) -> list[Path]:
    """The checkpoints of the same run before ``folder``, oldest first."""
    if not is_numbered(folder):
        return []
    return [other for other in numbered(folder.parent) if number_of(other) < number_of(folder)]


def _numbers(save_path: str | Path) -> str:
    there = [str(number_of(folder)) for folder in numbered(save_path) if (folder / ".metadata").exists()]
    return f", {' or '.join(there[-3:])}" if there else ", such as 99"


def resolve(path: str | Path) -> Path:
    """The checkpoint folder meant by ``path``: itself, or the latest one inside it."""
    itself = Path(path).is_dir() and (is_numbered(Path(path)) or (Path(path) / ".metadata").exists())
    folder = Path(path) if itself else latest(path)
    if folder is None:
        others = ", ".join(sorted(f.name for f in Path(path).parent.glob("iter_*")))
        there = f"; there are {others}" if others else f"; expected an iter_* folder or {TRACKER} in it"
        raise CheckpointError(f"{path}: no torch_dist checkpoint{there}")
    return folder


def has_adapters(path: str | Path) -> bool:
    """Whether a checkpoint in ``path`` has LoRA adapters (``lora.py``), whose names stand in its metadata."""
    return any(b".lora." in file.read_bytes() for file in Path(path).glob("*/.metadata"))


def prune(save_path: str | Path, keep: int) -> None:
    """Delete all but the ``keep`` newest checkpoints (0 keeps all), never the latest, and leftovers of a crash.

    Those after the latest do not count: somebody went back behind them, and the run will replace them.
    """
    for leftover in Path(save_path).glob(".iter_*"):
        if re.fullmatch(r"\.iter_[0-9]{7,18}\.(writing|replaced)", leftover.name):
            remove(leftover)
    newest = latest(save_path)
    until = [f for f in numbered(save_path) if newest is None or number_of(f) <= number_of(newest)]
    for folder in until[:-keep] if keep else []:
        remove(folder)


# --- writing a folder ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def complete_folder(output: Path, *, force: bool, made_of: Sequence[Path] = ()) -> Iterator[Path]:
    """A hidden folder beside ``output`` to write into; it becomes ``output`` when the block ends without an error.

    Args:
        force: replace a folder that is there.
        made_of: folders that are read for it, which ``output`` neither is nor holds.

    Raises:
        OutputRefused: something is there that is not to be replaced.
        MemAgentError: another run writes there.
    """
    output = Path(os.path.realpath(output))
    temporary, replaced = output.with_name(f".{output.name}.writing"), output.with_name(f".{output.name}.replaced")
    lock = f".{output.name}.lock"
    with folder_lock(output.parent, busy=f"another run is writing {output.name}", name=lock):
        try:
            _end_replacing(output, temporary, replaced)
            check_free(output, force, made_of)
            temporary.mkdir()
            with naming(output):
                yield temporary
            if force and output.exists():
                output.rename(replaced)
            temporary.rename(output)
        finally:
            _end_replacing(output, temporary, replaced)
            remove(output.with_name(lock))


def _end_replacing(output: Path, temporary: Path, replaced: Path) -> None:
    """However it ended, between the two renames as well."""
    remove(temporary)
    if replaced.is_dir() and not output.exists():
        replaced.rename(output)
    remove(replaced)


def check_free(output: Path, force: bool, made_of: Sequence[Path] = ()) -> None:
    """As early as can be. Raises OutputRefused."""
    if not output.exists():
        return
    place = output.resolve()
    if held := [folder for folder in made_of if folder.resolve().is_relative_to(place)]:
        raise OutputRefused(f"{output}: would replace {held[0]}, of which it is made; name another output")
    if not force:
        raise OutputRefused(f"{output}: exists already; set FORCE=1 (--force) to replace it")
    if not place.is_dir():
        raise OutputRefused(f"{output}: is not a folder; name another output")
