"""Whether a checkpoint of this pack is whole, and which one to take where it is not.

Disks break files after they were written, and a SAVE_PATH may come from somebody else. So every file is read here in
a way that runs nothing, before megatron-core reads it: ``.metadata`` by a table of what it may name, ``common.pt`` as
weights only; that and the tensors must be what torch writes (``torch_files.py``). A run whose newest checkpoint is
damaged goes on from the newest whole one before it, never silently::

    tracker says 7 | iter_7: __0_0.distcp is not as it was written | iter_5: common.pt is missing | iter_3: whole
    -> one warning with the file of iter_7, and iter_3
"""

from __future__ import annotations

import contextlib
import json
import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from megatron.core.safe_globals import register_safe_globals
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from ..system.errors import MemAgentError
from .bounded_pickle import Refused
from .damage import DamagedCheckpoint, damaged
from .folders import CheckpointError, is_numbered, newest_of_run, number_of, numbered, resolve
from .hashes import check_hashes
from .metadata import check_files, damage_explained, read_metadata
from .tensor_pickle import Settings
from .torch_files import check_file, check_spread, check_tensors

logger = logging.getLogger("mem_agent")

NO_OTHER = "no checkpoint before it is whole; copy it again if it is a copy, or start anew in another SAVE_PATH"


def newest_whole(path: str | Path) -> Path:
    """The checkpoint ``path``, or the one that its tracker names, or of a run the newest whole one before that.

    Raises:
        CheckpointError: ``path`` is damaged itself, none is whole, or another host wrote it.
    """
    newest = newest_of_run(path) or resolve(path)
    try:
        check_whole(newest)
    except DamagedCheckpoint as error:
        older = whole_before(newest)
        if older is None or newest == Path(path):
            raise CheckpointError(f"{error}; {NO_OTHER if older is None else f'{older} is whole'}") from error
        logger.warning("%s; going on from %s, the newest whole checkpoint before it", error, older)
        return older
    return newest


def whole_before(folder: Path) -> Path | None:
    """The newest whole checkpoint of a run before ``folder``."""
    if not is_numbered(folder):
        return None
    older = [other for other in numbered(folder.parent) if number_of(other) < number_of(folder)]
    return next(filter(_is_whole, reversed(older)), None)


@contextlib.contextmanager
def other_named(folder: Path, taken: Callable[[Path], str]) -> Iterator[None]:
    """Adds to a line about damage which checkpoint is whole, and how that is ``taken``."""
    try:
        yield
    except DamagedCheckpoint as error:
        older = whole_before(folder)
        other = f"{older} is whole: {taken(older)}" if older else "copy it again, or take another checkpoint"
        raise DamagedCheckpoint(f"{error}; {other}") from error


def _is_whole(folder: Path) -> bool:
    try:
        check_whole(folder)
    except (MemAgentError, OSError):
        return False
    return True


def check_whole(folder: Path) -> None:
    """Read all of it. Raises as ``read_checkpoint``."""
    check_hashes(folder)
    read_checkpoint(folder)


def read_checkpoint(folder: Path) -> tuple[dict[str, Any], Metadata]:
    """``common.pt`` and ``.metadata`` of a checkpoint of this pack, whose files are as long as they must be.

    Raises:
        CheckpointError: another host wrote it.
        DamagedCheckpoint: a file of it is missing, cut or overwritten.
    """
    _check_format(folder)
    common, metadata = _load_common(folder), read_metadata(folder, strict=True)
    check_files(folder, metadata)
    entries = metadata.state_dict_metadata.items()
    check_tensors(folder, metadata, [key for key, entry in entries if isinstance(entry, TensorStorageMetadata)])
    return common, metadata


def _check_format(folder: Path) -> None:
    """That the files are those of megatron-core, as ``metadata.json`` says, and all there."""
    missing = [name for name in ("common.pt", "metadata.json") if not (folder / name).is_file()]
    if len(missing) == 2:
        raise _of_another_host(folder)
    if missing:
        raise damaged(folder, missing[0], "is missing")
    try:
        backend = json.loads((folder / "metadata.json").read_bytes())["sharded_backend"]
    except (ValueError, LookupError, TypeError, RecursionError):
        backend = None
    if backend != "torch_dist":
        raise damaged(folder, "metadata.json", "does not say torch_dist")


def _load_common(folder: Path) -> dict[str, Any]:
    with damage_explained(folder, "common.pt"):
        try:
            check_file(folder / "common.pt", {("argparse", "Namespace"): Settings})
        except Refused:
            raise _of_another_host(folder) from None
        register_safe_globals()  # argparse.Namespace among them
        try:
            # Said, as TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD changes what is not said.
            common = torch.load(folder / "common.pt", map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:  # classes of another host
            raise _of_another_host(folder) from None
        check_spread(common, (folder / "common.pt").stat().st_size)
        if not isinstance(common, dict):
            raise damaged(folder, "common.pt", "holds no settings")
    if "host_state" not in common:
        raise _of_another_host(folder)
    return common


def _of_another_host(folder: Path) -> CheckpointError:
    return CheckpointError(f"{folder} was not written by this host; to start from its weights, set TORCH_DIST")
