"""What ``.metadata`` says of a checkpoint, read without running anything that it asks for.

The file is a pickle, and a pickle calls whatever it names. Here a name is looked up in the table below and nowhere
else: nothing is imported and no attribute is followed, so what is not in the table cannot run. Of other names

* those of the standard library, and dotted ones of torch, are refused: describing tensors needs none of them, and
  ``torch`` + ``os.system`` is how a checkpoint would run a command;
* all the rest, such as classes of the Megatron that wrote the file, become placeholders; a checkpoint of this pack
  holds none of those, so ``strict``, for what a run continues from, refuses them as well.

megatron-core reads the same file again with plain pickle: only files that have passed the strict reading are for it.

Nor does the file say how much memory is taken: a few bytes can declare a tensor of terabytes, or a pickle's memo of
billions of places. A tensor is no larger than the files that hold it, a memo no longer than the pickle.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as stored
from torch.distributed.checkpoint import planner
from torch.distributed.checkpoint.filesystem import _StorageInfo, _StoragePrefix

from ..system.errors import MemAgentError
from .damage import DamagedCheckpoint, damaged


class _Refused(Exception):
    """The pickle names something that describing tensors does not need; its only argument is that name."""


def read_metadata(folder: str | Path, *, strict: bool = False) -> stored.Metadata:
    """What ``folder/.metadata`` holds; ``strict`` for checkpoints that only this pack writes."""
    unpickler = _StrictUnpickler if strict else _Unpickler
    if not (Path(folder) / ".metadata").is_file():
        raise damaged(folder, ".metadata", "is missing")
    with damage_explained(folder, ".metadata"), open(Path(folder) / ".metadata", "rb") as file:
        reader = unpickler(file)
        metadata = reader.load()
        if max(reader.memo, default=0) > file.tell():
            raise damaged(folder, ".metadata", "asks for more memory than its length allows")
        known = isinstance(metadata, stored.Metadata) and isinstance(metadata.state_dict_metadata, dict)
        if not known or not isinstance(metadata.storage_data, dict):
            raise damaged(folder, ".metadata", "describes no tensors")
        for info in _places(metadata):
            if info.relative_path != PurePosixPath(info.relative_path).name:
                raise DamagedCheckpoint(f"{folder}: not read: .metadata names {info.relative_path!r}, outside of it")
    return metadata


def check_sizes(folder: str | Path, metadata: stored.Metadata) -> None:
    """Raise DamagedCheckpoint if a tensor, or one axis of it, is larger than all files together."""
    with damage_explained(folder, ".metadata"):
        files = {Path(folder) / info.relative_path for info in _places(metadata)}
        held = sum(file.stat().st_size for file in files if file.is_file())
        for key, entry in metadata.state_dict_metadata.items():
            if isinstance(entry, stored.TensorStorageMetadata):
                declared = max(math.prod(entry.size) * entry.properties.dtype.itemsize, *entry.size, 0)
                if declared > held:
                    what = f"{key!r:.80} is said to be {list(entry.size)!s:.80}; the files have {held} bytes"
                    raise damaged(folder, ".metadata", what)


def check_files(folder: str | Path, metadata: stored.Metadata) -> None:
    """Raise DamagedCheckpoint if a file that the tensors are in is missing or too short for them."""
    ends: dict[str, int] = {}
    with damage_explained(folder, ".metadata"):
        for info in _places(metadata):
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
    except _Refused as error:
        name = repr(str(error)[:80])
        raise DamagedCheckpoint(
            f"{folder}: not read: {file} asks for {name}, which it has no need of; the checkpoint may be an attack"
        ) from None
    # Unpickling arbitrary bytes ends in many types: KeyError, IndexError, TypeError, UnicodeDecodeError, ...
    except Exception as error:
        cause = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise damaged(folder, file, cause) from error


def _places(metadata: stored.Metadata) -> Iterator[_StorageInfo]:
    return (info for info in metadata.storage_data.values() if isinstance(info, _StorageInfo))


# --- what a pickle may name ------------------------------------------------------------------------------------------


def _layout(name: str) -> torch.layout:
    return _LAYOUTS[name]


def _enum_member(kind: Any, name: str) -> Any:
    """How Python 3.11.0 to 3.11.3 pickle a member of an enum, which is by ``getattr``."""
    if kind not in (stored._MEM_FORMAT_ENCODING, planner.WriteItemType):
        raise _Refused("builtins.getattr")
    return kind[name]


_LAYOUTS = {str(value): value for value in vars(torch).values() if isinstance(value, torch.layout)}
_CLASSES = (
    stored.Metadata, stored.MetadataIndex, stored.StorageMeta, stored.TensorProperties, stored._MEM_FORMAT_ENCODING,
    stored.TensorStorageMetadata, stored.BytesStorageMetadata, stored.ChunkStorageMetadata, _StorageInfo,
    _StoragePrefix, planner.SavePlan, planner.WriteItem, planner.WriteItemType, planner.TensorWriteData,
    planner.BytesIOWriteData, torch.Size, OrderedDict, defaultdict, set, frozenset, slice, list, dict, tuple, int,
    bool,
)
_OLD_TORCH = "torch.distributed._shard.sharded_tensor.metadata"  # until 2.2
_KNOWN: dict[tuple[str, str], Any] = {
    **{(kind.__module__, kind.__qualname__): kind for kind in _CLASSES},
    **{("torch", str(v).removeprefix("torch.")): v for v in vars(torch).values() if isinstance(v, torch.dtype)},
    ("torch.serialization", "_get_layout"): _layout,
    ("builtins", "getattr"): _enum_member,
    (_OLD_TORCH, "TensorProperties"): stored.TensorProperties,
    (_OLD_TORCH, "MEM_FORMAT_ENCODING"): stored._MEM_FORMAT_ENCODING,
    **{(module, "PosixPath"): PurePosixPath for module in ("pathlib", "pathlib._local")},
}


class _Unknown:
    """Stands for any object that describing tensors does not need."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


class _Unpickler(pickle._Unpickler):
    """The one in Python, whose memo is a dict: in C it is an array as long as its largest place."""

    memo: dict[int, Any]

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get((module, name))
        return self.unknown(module, name) if known is None else known

    def unknown(self, module: str, name: str) -> Any:
        package = module.split(".")[0]
        if package in sys.stdlib_module_names or (package == "torch" and "." in name):
            raise _Refused(f"{module}.{name}")
        return _Unknown


class _StrictUnpickler(_Unpickler):
    def unknown(self, module: str, name: str) -> Any:
        raise _Refused(f"{module}.{name}")
