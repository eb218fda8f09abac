"""The checkpoints in a folder: which there are, which one a run continues from, which are kept. Needs no torch.

A run continues from the one that the tracker names, written last (``checkpoint.py``); in a host's run, a folder
without it holds no complete checkpoint. People write into it as well, to set a run back, so whatever it holds is
answered with what it may hold.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..system.errors import MemAgentError
from ..system.removal import remove_or_tell

TRACKER = "latest_checkpointed_iteration.txt"
"""Megatron's own name and content: an iteration's number, or ``release`` for a model that no training has written."""

_LONGEST = 2**10
"""Of what is read of it: blanks around a number are borne."""


class CheckpointError(MemAgentError):
    """A checkpoint could not be written or read: the message names the path, the cause and the remedy."""


def tracked(save_path: str | Path) -> str | None:
    """What the tracker of ``save_path`` names: the number of a checkpoint, or ``release``; None without a tracker."""
    tracker = Path(save_path) / TRACKER
    if not tracker.exists():
        return None
    if not tracker.is_file():
        remedy = f"in its place write the number of a checkpoint{_numbers(save_path)}"
        raise CheckpointError(f"{tracker} is no file; {remedy}")
    with tracker.open("rb") as file:
        text = file.read(_LONGEST).decode(errors="replace").strip()
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
    """What a run goes on from if it is whole: what the tracker names, or without one the newest that is there.

    The first checkpoint of a run that is killed has no tracker yet; others lose it when they are copied.
    """
    return latest(save_path) or next(reversed(numbered(save_path)), None)


def is_numbered(folder: Path) -> bool:
    return re.fullmatch(r"iter_[0-9]{7,18}", folder.name) is not None


def _is_leftover(folder: Path) -> bool:
    """Not what a conversion is writing beside the checkpoints."""
    return re.fullmatch(r"\.iter_[0-9]{7,18}\.(writing|replaced)", folder.name) is not None


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
    return any(b".lora." in file.read_bytes() for file in Path(path).glob("*/.metadata") if file.is_file())


def prune(save_path: str | Path, keep: int) -> None:
    """Delete all but the ``keep`` newest checkpoints (0 keeps all), never the latest, and leftovers of a crash.

    Those after the latest do not count: somebody went back behind them, and the run will replace them. Of one that was
    moved elsewhere the link goes.
    """
    for leftover in filter(_is_leftover, Path(save_path).glob(".iter_*")):
        remove_or_tell(leftover)
    newest, there = latest(save_path), filter(Path.is_dir, numbered(save_path))
    until = [folder for folder in there if newest is None or number_of(folder) <= number_of(newest)]
    for folder in until[:-keep] if keep else []:
        remove_or_tell(folder)
