"""A pickle of somebody else, read without running what it asks for, in time and memory bounded by its length.

A pickle calls whatever it names. Here a name is looked up in the table below and nowhere else: nothing is imported and
no attribute is followed, so what is not in the table cannot run. Of other names

* those of the standard library, and dotted ones of torch, are refused: describing tensors needs none of them, and
  ``torch`` + ``os.system`` is how a checkpoint would run a command;
* all the rest, such as classes of the Megatron that wrote the file, become placeholders (``BoundedUnpickler``); a
  checkpoint of this pack holds none of those, so ``StrictUnpickler``, for what a run continues from, refuses them too.

What a pickle names twice is one object, so sixty bytes make a tuple whose hash takes a year, and any call can be given
the same million values again and again::

    ()  DUP TUPLE2  DUP TUPLE2  DUP TUPLE2 ...      a pair of the pair before, twice as many values each time

So a key is a short plain value or a short tuple of such, calls are short, states together are no longer than the
pickle, and what only made containers out of other containers makes none. Few keys of a dict have one hash: those of
numbers can be chosen. Nor is anything given a state but what the pickle has made itself, as the table's functions and
enums are everybody's; and no dict is, whose ``get`` it would be.
"""

from __future__ import annotations

import pickle
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Sized
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import PurePosixPath
from typing import IO, Any

import torch
from torch.distributed.checkpoint import metadata as stored
from torch.distributed.checkpoint import planner
from torch.distributed.checkpoint.filesystem import _StorageInfo, _StoragePrefix

LONGEST = 64
"""Of what describing tensors keeps short: dimensions, arguments of a call, fields of an object, parts of a key."""
_LONGEST_KEY = 1024
"""Letters."""
_SAME_HASH = 64
_LONGEST_PATH = 4096


def _layout(name: Any) -> torch.layout:
    if type(name) is not str:
        raise TypeError("a layout is asked for by what is no name")
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


class Refused(Exception):
    """The pickle names something that describing tensors does not need; its only argument is that name."""


class Unknown:
    """Stands for any object that describing tensors does not need."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


_PLAIN = (str, bytes, int, float, type(None), torch.Size, torch.dtype, torch.layout, Enum, PurePosixPath, Unknown)
"""Whose hash and text take no longer than they are long."""


def _are_plain(values: Any) -> bool:
    return len(values) <= LONGEST and all(
        isinstance(value, _PLAIN) and not (isinstance(value, str | bytes) and len(value) > _LONGEST_KEY)
        for value in values
    )


def _is_key(value: Any) -> bool:
    if isinstance(value, stored.MetadataIndex):
        return _are_plain((value.fqn, value.offset, value.index))
    return _are_plain(value if type(value) is tuple else (value,))


def _is_state(of: Any, state: Any) -> bool:
    if isinstance(of, stored.MetadataIndex):  # which may be a key already
        return type(state) is dict and _are_plain(state.values())
    if isinstance(of, stored.TensorProperties):
        return _are_plain(state)
    return isinstance(of, Unknown) or (isinstance(of, _CLASSES) and type(state) is dict and len(state) <= LONGEST)


def _size_of_state(state: Any) -> int:
    """How much is copied where it is given; of a pair, which says fields and slots, of both."""
    parts = state if type(state) is tuple else (state,)
    return len(parts) + sum(len(part) for part in parts if isinstance(part, Sized))


def _makes_fields(kind: Any) -> bool:
    """Whether a call of it would be given fields; they come as a state, which is looked at."""
    return isinstance(kind, type) and is_dataclass(kind)


def _if(fits: Callable[[BoundedUnpickler, list[Any]], bool], code: bytes) -> Callable[[Any], None]:
    """What pickle does at ``code``, if that ``fits`` the stack: what stands above the last mark."""
    load: Callable[[Any], None] = pickle._Unpickler.dispatch[code[0]]

    def checked(self: BoundedUnpickler) -> None:
        if not fits(self, self.stack):
            raise ValueError("has parts that describe no tensor")
        load(self)

    return checked


_CHECKED: dict[bytes, Callable[[BoundedUnpickler, list[Any]], bool]] = {
    pickle.SETITEM: lambda reader, stack: reader.takes(stack[-3], [stack[-2]]),
    pickle.SETITEMS: lambda reader, stack: reader.takes(reader.metastack[-1][-1], stack[::2]),
    pickle.DICT: lambda reader, stack: reader.takes(None, stack[::2]),
    pickle.ADDITEMS: lambda reader, stack: reader.takes(reader.metastack[-1][-1], stack),
    pickle.FROZENSET: lambda reader, stack: reader.takes(None, stack),
    pickle.REDUCE: lambda reader, stack: len(stack[-1]) <= LONGEST and not _makes_fields(stack[-2]),
    pickle.NEWOBJ: lambda reader, stack: len(stack[-1]) <= LONGEST,
    pickle.BUILD: lambda reader, stack: reader.gives(stack[-2], stack[-1]),
    # Takes the memory that it names before it reads; other calls; numbers without end.
    **dict.fromkeys((pickle.BYTEARRAY8, pickle.INST, pickle.OBJ, pickle.NEWOBJ_EX), lambda reader, stack: False),
    **dict.fromkeys((pickle.INT, pickle.LONG, pickle.LONG4), lambda reader, stack: False),
}


class BoundedUnpickler(pickle._Unpickler):
    """The one in Python, whose memo is a dict: in C it is an array as long as its largest place."""

    memo: dict[int, Any]
    stack: list[Any]
    metastack: list[list[Any]]
    dispatch = {
        **pickle._Unpickler.dispatch,
        **{code[0]: _if(fits, code) for code, fits in _CHECKED.items()},
    }

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self._file, self._given = file, 0
        self._hashes: dict[int, tuple[Any, Counter[int]]] = {}
        """By the id of a container, which it holds: how many keys of one hash it was given."""

    def takes(self, container: Any, keys: list[Any]) -> bool:
        """Whether these may become keys of ``container``; None: of one that is made of them alone."""
        if not all(map(_is_key, keys)):
            return False
        chosen = [hash(key) for key in keys if type(key) is not str]  # of a text nobody can choose it
        if not chosen:
            return True
        kept = {} if container is None else self._hashes
        _, hashes = kept.setdefault(id(container), (container, Counter()))
        hashes.update(chosen)
        return all(hashes[one] <= _SAME_HASH for one in chosen)

    def gives(self, of: Any, state: Any) -> bool:
        """Whether that may be a state."""
        self._given += _size_of_state(state)
        return _is_state(of, state) and self._given <= self._file.tell()

    def find_class(self, module: str, name: str) -> Any:
        known = KNOWN.get((module, name))
        return self.unknown(module, name) if known is None else known

    def unknown(self, module: str, name: str) -> Any:
        package = module.split(".")[0]
        if package in sys.stdlib_module_names or (package == "torch" and "." in name):
            raise Refused(f"{module}.{name}")
        return Unknown


class StrictUnpickler(BoundedUnpickler):
    def unknown(self, module: str, name: str) -> Any:
        raise Refused(f"{module}.{name}")
