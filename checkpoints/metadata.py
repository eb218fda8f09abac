"""What ``.metadata`` says of a checkpoint, read without running anything that it asks for (``bounded_pickle.py``).

megatron-core reads the same file again with plain pickle: only files that have passed the strict reading are for it.

Nor does the file say how much memory is taken: a few bytes can declare a tensor of terabytes, or a pickle's memo of
billions of places. A tensor is no larger than the files that hold it, a memo no longer than the pickle.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import torch
from torch.distributed.checkpoint import metadata as stored
from torch.distributed.checkpoint.filesystem import _StorageInfo

from ..system.errors import MemAgentError
from .bounded_pickle import BoundedUnpickler, Refused, StrictUnpickler
from .damage import DamagedCheckpoint, damaged

_LONGEST_NAME = 255
"""Letters: no file system that checkpoints lie on has longer names."""


def read_metadata(folder: str | Path, *, strict: bool = False) -> stored.Metadata:
    """What ``folder/.metadata`` holds; ``strict`` for checkpoints that only this pack writes."""
    unpickler = StrictUnpickler if strict else BoundedUnpickler
    if not (Path(folder) / ".metadata").is_file():
        raise damaged(folder, ".metadata", "is missing")
    with damage_explained(folder, ".metadata"), open(Path(folder) / ".metadata", "rb") as file:
        reader = unpickler(file)
        metadata = reader.load()
        if max(reader.memo, default=0) > file.tell():
            raise damaged(folder, ".metadata", "asks for more memory than its length allows")
        known = isinstance(metadata, stored.Metadata) and isinstance(metadata.state_dict_metadata, dict)
        if not known or type(metadata.storage_data) is not dict:
            raise damaged(folder, ".metadata", "describes no tensors")
        for info in metadata.storage_data.values():
            # Whatever has such fields torch would read.
            if type(info) is not _StorageInfo or type(info.relative_path) is not str:
                raise damaged(folder, ".metadata", "has a place that is none")
            if len(info.relative_path) > _LONGEST_NAME:  # which many places may share, each looked at
                raise damaged(folder, ".metadata", f"has a name of {len(info.relative_path)} letters")
            if info.relative_path != PurePosixPath(info.relative_path).name:
                raise DamagedCheckpoint(f"{folder}: not read: .metadata names {info.relative_path!r}, outside of it")
    return metadata


def check_sizes(folder: str | Path, metadata: stored.Metadata) -> None:
    """Raise DamagedCheckpoint if a tensor, or one axis of it, is larger than all files, or one is read repeatedly."""
    with damage_explained(folder, ".metadata"):
        held = sum(_sizes_of_files(folder, metadata).values())
        for key, entry in metadata.state_dict_metadata.items():
            if isinstance(entry, stored.TensorStorageMetadata):
                if not isinstance(entry.size, torch.Size) or min(entry.size, default=0) < 0:
                    raise damaged(folder, ".metadata", f"{key!r:.80} has no size")
                declared = max(math.prod(entry.size) * entry.properties.dtype.itemsize, *entry.size, 0)
                if declared > held:
                    what = f"{key!r:.80} is said to be {list(entry.size)!s:.80}; the files have {held} bytes"
                    raise damaged(folder, ".metadata", what)


def _sizes_of_files(folder: str | Path, metadata: stored.Metadata) -> dict[str, int]:
    """Of those that are there, each as long as all tensors that are said to be in it."""
    files = {info.relative_path: Path(folder) / info.relative_path for info in metadata.storage_data.values()}
    sizes = {name: file.stat().st_size for name, file in files.items() if file.is_file()}
    left = dict(sizes)
    for index, info in metadata.storage_data.items():
        key = index.fqn if isinstance(index, stored.MetadataIndex) else ""
        if not isinstance(metadata.state_dict_metadata.get(key), stored.TensorStorageMetadata):
            continue
        if not all(type(number) is int and number >= 0 for number in (info.offset, info.length)):
            raise damaged(folder, ".metadata", f"{key!r:.80} is in a place that is none")
        if info.relative_path in left:
            left[info.relative_path] -= info.length
            if left[info.relative_path] < 0:
                raise damaged(folder, info.relative_path, "is shorter than the tensors that are in it")
    return sizes


def check_files(folder: str | Path, metadata: stored.Metadata) -> None:
    """Raise DamagedCheckpoint if a file that the tensors are in is missing or too short for them."""
    ends: dict[str, int] = {}
    with damage_explained(folder, ".metadata"):
        for info in metadata.storage_data.values():
            ends[info.relative_path] = max(ends.get(info.relative_path, 0), info.offset + info.length)
    for name, end in ends.items():
        file = Path(folder) / name
        if not file.is_file():
            raise damaged(folder, name, "is missing")
        if file.stat().st_size < end:
            raise damaged(folder, name, f"has {file.stat().st_size} of at least {end} bytes")
    check_sizes(folder, metadata)


@contextlib.contextmanager
def damage_explained(folder: str | Path, file: str) -> Iterator[None]:
    """Whatever reading a broken file raises becomes one line; an ``OSError`` names its file already."""
    try:
        yield
    except (MemAgentError, OSError):
        raise
    except Refused as error:
        name = repr(str(error)[:80])
        raise DamagedCheckpoint(
            f"{folder}: not read: {file} asks for {name}, which it has no need of; the checkpoint may be an attack"
        ) from None
    # Unpickling arbitrary bytes ends in many types: KeyError, IndexError, TypeError, UnicodeDecodeError, ...
    except Exception as error:
        cause = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise damaged(folder, file, cause) from error
