"""The checkpoints in a folder: which there are, which one a run continues from, which are kept. Needs no torch.

A run continues from the one that the tracker names, written last (``checkpoint.py``). People edit the tracker as well,
to set a run back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..system.errors import MemAgentError
from ..system.files import naming, remove, scratch_folder

TRACKER = "latest_checkpointed_iteration.txt"
"""Megatron's own name and content: an iteration's number, or ``release`` for a model that no training has written."""


class CheckpointError(MemAgentError):
    """A checkpoint or a model could not be written or read: the message names the path, the cause and the remedy."""


class DamagedCheckpoint(CheckpointError):
    """A file of a checkpoint cannot be read: the message names the folder and the cause."""


def latest(save_path: str | Path) -> Path | None:
    """The folder that the tracker of ``save_path`` names (``iter_*`` or ``release``), or None without a tracker."""
    tracker = Path(save_path) / TRACKER
    if not tracker.is_file():
        return None
    text = tracker.read_text().strip()
    folder = tracker.parent / ("release" if text == "release" else f"iter_{text:0>7}")
    if not folder.is_dir():
        raise CheckpointError(f"{tracker} holds {text!r}, the number of no checkpoint beside it; correct it")
    return folder


def newest_of_run(save_path: str | Path) -> Path | None:
    """The checkpoint a run resumes from: the one the tracker names, or the newest folder if there is no tracker.

    The first checkpoint of a run that is killed has no tracker yet; others lose it when they are copied.
    """
    return latest(save_path) or next(reversed(numbered(save_path)), None)


def number_of(folder: Path) -> int:
    """The rollout after which a checkpoint of a run was written."""
    if folder.name == "release":
        raise CheckpointError(f"{folder} is a converted model, not a checkpoint of a run; set another SAVE_PATH, and "
                              "TORCH_DIST to this folder to start from its weights")
    return int(folder.name.removeprefix("iter_"))


def numbered(save_path: str | Path, until: Path | None = None) -> list[Path]:
    """The checkpoints of a run, oldest first; no later ones than ``until``."""
    folders = sorted(Path(save_path).glob(f"iter_{'[0-9]' * 7}"))
    return [folder for folder in folders if until is None or number_of(folder) <= number_of(until)]


def resolve(path: str | Path) -> Path:
    """The checkpoint folder meant by ``path``: itself, or the latest one inside it."""
    path = Path(path)
    folder = path if (path / ".metadata").exists() else latest(path)
    if folder is None:
        names = ", ".join(folder.name for folder in numbered(path.parent)) or "none"
        raise CheckpointError(f"{path}: no torch_dist checkpoint, and no {TRACKER} in it; in {path.parent}: {names}")
    return folder


def prune(save_path: str | Path, keep: int) -> None:
    """Delete all but the ``keep`` newest checkpoints (0 keeps all), never the latest, and leftovers of a crash.

    Checkpoints after the latest are not counted: the run was set back and will overwrite them.
    """
    for leftover in Path(save_path).glob(".iter_*.writing"):
        remove(leftover)
    for folder in numbered(save_path, latest(save_path))[:-keep] if keep else []:
        remove(folder)


@contextlib.contextmanager
def complete_folder(output: Path, force: bool, made_of: Sequence[Path]) -> Iterator[Path]:
    """A folder to write into; it takes the place of ``output`` when the block ends without an error.

    Raises:
        CheckpointError: ``output`` exists and is not to be replaced (``force``), or holds one of the folders that it
            is made of.
    """
    output = output.resolve()  # a link stays a link
    if any(folder.resolve().is_relative_to(output) for folder in made_of):
        raise CheckpointError(f"{output}: would overwrite its own input; name another output")
    if output.exists() and not force:
        raise CheckpointError(f"{output}: exists already; set FORCE=1 (--force) to replace it, or name another output")
    output.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(f".{output.name}.writing-", output.parent) as scratch, naming(output):
        draft = scratch / "draft"
        draft.mkdir()
        yield draft
        if output.exists():
            output.rename(scratch / "replaced")
        draft.rename(output)
