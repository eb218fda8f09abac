"""What ``.metadata`` says of a checkpoint, read without running anything that it asks for.

The file is a pickle, and a pickle calls whatever it names. Here a name is looked up in the table below and nowhere
else: nothing is imported and no attribute is followed, so what is not in the table cannot run. Of other names

* those of the standard library, and dotted ones of torch, are refused: describing tensors needs none of them, and
  ``torch`` + ``os.system`` is how a checkpoint would run a command;
* all the rest, such as classes of the Megatron that wrote the file, become placeholders; a checkpoint of this pack
  holds none of those, so ``strict``, for what a run continues from, refuses them as well.

megatron-core reads the same file again with plain pickle: only files that have passed the strict reading are for it.

Nor does the file say how much memory or time is taken: a few bytes can declare a tensor of terabytes, or a pickle's
memo of billions of places. A tensor is no larger than the files that hold it, a memo no longer than the pickle. What a
pickle names twice is one object, so sixty bytes make a tuple whose hash takes a year, and any call can be given the
same million values again and again::

    ()  DUP TUPLE2  DUP TUPLE2  DUP TUPLE2 ...      a pair of the pair before, twice as many values each time

So a key is a plain value or a short tuple of such, calls and states are short, and what only made containers out of
other containers makes none (``BoundedUnpickler``).
"""

from __future__ import annotations

import contextlib
import math
import pickle
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as stored
from torch.distributed.checkpoint import planner
from torch.distributed.checkpoint.filesystem import _StorageInfo, _StoragePrefix

from ..system.errors import MemAgentError
from .damage import DamagedCheckpoint, damaged


class Refused(Exception):
    """The pickle names something that describing tensors does not need; its only argument is that name."""


def read_metadata(folder: str | Path, *, strict: bool = False) -> stored.Metadata:
    """What ``folder/.metadata`` holds; ``strict`` for checkpoints that only this pack writes."""
    unpickler = _StrictUnpickler if strict else BoundedUnpickler
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
    """Raise DamagedCheckpoint if a tensor, or one axis of it, is larger than all files, or one is read repeatedly."""
    with damage_explained(folder, ".metadata"):
        held = sum(_sizes_of_files(folder, metadata).values())
        for key, entry in metadata.state_dict_metadata.items():
            if isinstance(entry, stored.TensorStorageMetadata):
                if not isinstance(entry.size, torch.Size):
                    raise damaged(folder, ".metadata", f"{key!r:.80} has no size")
                declared = max(math.prod(entry.size) * entry.properties.dtype.itemsize, *entry.size, 0)
                if declared > held:
                    what = f"{key!r:.80} is said to be {list(entry.size)!s:.80}; the files have {held} bytes"
                    raise damaged(folder, ".metadata", what)


def _sizes_of_files(folder: str | Path, metadata: stored.Metadata) -> dict[str, int]:
    """Of those that are there, each as long as all tensors that are said to be in it."""
    files = {info.relative_path: Path(folder) / info.relative_path for info in _places(metadata)}
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
    except Refused as error:
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


LONGEST = 64
"""Of what describing tensors keeps short: dimensions, arguments of a call, fields of an object, parts of a key."""
_LONGEST_PATH = 4096


def _layout(name: str) -> torch.layout:
    return _LAYOUTS[name]


@dataclass(frozen=True, slots=True)
class _Members:
    """An enum, of which a pickle asks for a member by its number."""

    kind: type[Enum]

    def __call__(self, number: int) -> Enum:
        if type(number) is not int:
            raise TypeError("a member of an enum is asked for by what is no number")
        return self.kind(number)


def _enum_member(members: Any, name: Any) -> Any:
    """How Python 3.11.0 to 3.11.3 pickle a member of an enum, which is by ``getattr``."""
    if not isinstance(members, _Members) or type(name) is not str:
        raise Refused("builtins.getattr")
    return members.kind[name]


def _size(dimensions: Any) -> torch.Size:
    if len(dimensions) > LONGEST:
        raise ValueError(f"a tensor of {len(dimensions)} dimensions")
    return torch.Size(dimensions)


def _path(*parts: str) -> PurePosixPath:
    if sum(map(len, parts)) > _LONGEST_PATH:
        raise ValueError(f"a path of more than {_LONGEST_PATH} characters")
    return PurePosixPath(*parts)


def _defaultdict(factory: Any = None) -> defaultdict[Any, Any]:
    return defaultdict(factory)


def _empty(kind: type) -> Callable[[], Any]:
    """What is filled afterwards, or makes the values of a defaultdict; copies of what is there nobody asks for."""
    return lambda: kind()


_LAYOUTS = {str(value): value for value in vars(torch).values() if isinstance(value, torch.layout)}
_CLASSES = (
    stored.Metadata, stored.MetadataIndex, stored.StorageMeta, stored.TensorProperties,
    stored.TensorStorageMetadata, stored.BytesStorageMetadata, stored.ChunkStorageMetadata, _StorageInfo,
    _StoragePrefix, planner.SavePlan, planner.WriteItem, planner.TensorWriteData, planner.BytesIOWriteData, slice,
)
_MADE_EMPTY = (OrderedDict, set, frozenset, list, dict, tuple, int, bool)
_OLD_TORCH = "torch.distributed._shard.sharded_tensor.metadata"  # until 2.2
KNOWN: dict[tuple[str, str], Any] = {
    **{(kind.__module__, kind.__qualname__): kind for kind in _CLASSES},
    **{(kind.__module__, kind.__qualname__): _empty(kind) for kind in _MADE_EMPTY},
    **{(kind.__module__, kind.__qualname__): _Members(kind)
       for kind in (stored._MEM_FORMAT_ENCODING, planner.WriteItemType)},
    ("torch", "Size"): _size,
    ("collections", "defaultdict"): _defaultdict,
    **{("torch", str(v).removeprefix("torch.")): v for v in vars(torch).values() if isinstance(v, torch.dtype)},
    ("torch.serialization", "_get_layout"): _layout,
    ("builtins", "getattr"): _enum_member,
    (_OLD_TORCH, "TensorProperties"): stored.TensorProperties,
    (_OLD_TORCH, "MEM_FORMAT_ENCODING"): _Members(stored._MEM_FORMAT_ENCODING),
    **{(module, "PosixPath"): _path for module in ("pathlib", "pathlib._local")},
}


class Unknown:
    """Stands for any object that describing tensors does not need."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


_PLAIN = (str, bytes, int, float, type(None), torch.Size, torch.dtype, torch.layout, Enum, PurePosixPath, Unknown)
"""Whose hash and text take no longer than they are long."""


def _are_plain(values: Any) -> bool:
    return len(values) <= LONGEST and all(isinstance(value, _PLAIN) for value in values)


def _is_key(value: Any) -> bool:
    if isinstance(value, stored.MetadataIndex):
        return _are_plain((value.fqn, value.offset, value.index))
    return _are_plain(value if type(value) is tuple else (value,))


def _is_state(of: Any, state: Any) -> bool:
    if isinstance(of, Unknown):
        return True
    return len(state) <= LONGEST and (not isinstance(of, stored.TensorProperties) or _are_plain(state))


def _makes_fields(kind: Any) -> bool:
    """Whether a call of it would be given fields; they come as a state, which is looked at."""
    return isinstance(kind, type) and is_dataclass(kind)


def _if(fits: Callable[[list[Any]], bool], code: bytes) -> Callable[[Any], None]:
    """What pickle does at ``code``, if that ``fits`` the stack: what stands above the last mark."""
    load: Callable[[Any], None] = pickle._Unpickler.dispatch[code[0]]

    def checked(self: BoundedUnpickler) -> None:
        if not fits(self.stack):
            raise ValueError("has parts that describe no tensor")
        load(self)

    return checked


_CHECKED: dict[bytes, Callable[[list[Any]], bool]] = {
    pickle.SETITEM: lambda stack: _is_key(stack[-2]),
    pickle.SETITEMS: lambda stack: all(map(_is_key, stack[::2])),
    pickle.DICT: lambda stack: all(map(_is_key, stack[::2])),
    pickle.ADDITEMS: lambda stack: all(map(_is_key, stack)),
    pickle.FROZENSET: lambda stack: all(map(_is_key, stack)),
    pickle.REDUCE: lambda stack: len(stack[-1]) <= LONGEST and not _makes_fields(stack[-2]),
    pickle.NEWOBJ: lambda stack: len(stack[-1]) <= LONGEST,
    pickle.BUILD: lambda stack: _is_state(stack[-2], stack[-1]),
    # Takes the memory that it names before it reads; other calls; numbers without end.
    **dict.fromkeys((pickle.BYTEARRAY8, pickle.INST, pickle.OBJ, pickle.NEWOBJ_EX), lambda stack: False),
    **dict.fromkeys((pickle.INT, pickle.LONG, pickle.LONG4), lambda stack: False),
}


class BoundedUnpickler(pickle._Unpickler):
    """The one in Python, whose memo is a dict: in C it is an array as long as its largest place."""

    memo: dict[int, Any]
    stack: list[Any]
    dispatch = {
        **pickle._Unpickler.dispatch,
        **{code[0]: _if(fits, code) for code, fits in _CHECKED.items()},
    }

    def find_class(self, module: str, name: str) -> Any:
        known = KNOWN.get((module, name))
        return self.unknown(module, name) if known is None else known

    def unknown(self, module: str, name: str) -> Any:
        package = module.split(".")[0]
        if package in sys.stdlib_module_names or (package == "torch" and "." in name):
            raise Refused(f"{module}.{name}")
        return Unknown


class _StrictUnpickler(BoundedUnpickler):
    def unknown(self, module: str, name: str) -> Any:
        raise Refused(f"{module}.{name}")
