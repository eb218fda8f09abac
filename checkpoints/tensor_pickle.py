"""The pickle in a file that ``torch.save`` wrote: what it asks torch for, gone through without making a tensor.

It has the names of a few functions that make tensors of storages, the dtypes, and what keeps tensors by name.

Invariant: a tensor lies within its storage. Those that share numbers, or repeat them along an axis, are longer once
somebody copies them: all together no more than ``_COPIES`` times the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

import torch

from .bounded_pickle import KNOWN, LONGEST, BoundedUnpickler, Refused, Unknown

_COPIES = 64
"""More names than models have for one weight, also where their layers are one."""


@dataclass(frozen=True, slots=True)
class _Storage:
    """A class of storages, by the bytes of an entry."""

    itemsize: int


class _Made(Unknown):
    """A tensor, which is not made here."""

    def __setstate__(self, state: Any) -> None:
        raise ValueError("has a tensor with a state")


class Settings(Unknown):
    """An ``argparse.Namespace``, which is not made here."""

    def __setstate__(self, state: Any) -> None:
        if type(state) is not dict:
            raise ValueError("has settings that are none")


@dataclass(frozen=True, slots=True)
class _Held:
    """A storage: its bytes, those of an entry, and who counts what its tensors have."""

    size: int
    itemsize: int
    reader: Shape


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *more: Any) -> _Made:
    """``_rebuild_tensor_v2`` and its like: all entries lie within the storage."""
    if not isinstance(storage, _Held):
        raise ValueError("has a tensor of no storage")
    if not all(type(one) in _OF_TENSORS or _are_attributes(one) for one in more):
        raise ValueError("has a tensor that is told what torch tells none")
    # Of an untyped storage one argument is the dtype; torch makes any storage as long as that asks for.
    itemsize = max([storage.itemsize, *(one.itemsize for one in more if isinstance(one, torch.dtype))])
    shaped = len(size) == len(stride) <= LONGEST
    if not shaped or not all(type(number) is int and number >= 0 for number in (offset, *size, *stride)):
        raise ValueError("has a tensor whose shape is no shape")
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    entries = math.prod(size)
    if entries and (last + 1) * itemsize > storage.size:
        raise ValueError("has a tensor that is larger than its storage")
    storage.reader.copied += entries * itemsize
    return _Made()


def _parameter(data: Any, requires_grad: Any, *more: Any) -> Any:
    for state in more:
        _check_state(state)
    if not isinstance(data, _Made) or type(requires_grad) is not bool:
        raise ValueError("has a parameter of no tensor")
    return data


def _typed(make: Any, kind: Any, arguments: Any, state: Any) -> Any:
    """A tensor, or a parameter, to which somebody has given attributes."""
    if make not in (_tensor, _parameter) or len(arguments) > LONGEST:
        raise ValueError("has a tensor that is made of something else")
    _check_state(state)
    return make(*arguments)


def _check_state(state: Any) -> None:
    if not _are_attributes(state):
        raise ValueError("has a tensor with a state")


_OF_TENSORS = (bool, int, float, str, type(None), torch.dtype, _Made)


def _are_attributes(state: Any) -> bool:
    """Plain ones by name; torch shows what is none in its errors, however long that becomes."""
    return isinstance(state, dict) and len(state) <= LONGEST and all(
        type(name) is str and type(value) in _OF_TENSORS for name, value in state.items()
    )


_STORAGES = {
    f"{name}Storage": _Storage(dtype.itemsize) for name, dtype in {
        "Double": torch.double, "Float": torch.float, "Half": torch.half, "BFloat16": torch.bfloat16,
        "Long": torch.long, "Int": torch.int, "Short": torch.short, "Char": torch.int8, "Byte": torch.uint8,
        "Bool": torch.bool,
    }.items()
}
_TENSORS: dict[tuple[str, str], Any] = {
    **{("torch._utils", f"_rebuild_{name}"): _tensor for name in ("tensor", "tensor_v2", "tensor_v3")},
    **{("torch._utils", name): _parameter for name in ("_rebuild_parameter", "_rebuild_parameter_with_state")},
    ("torch._tensor", "_rebuild_from_type_v2"): _typed,
    **dict.fromkeys((("torch", "Tensor"), ("torch.nn.parameter", "Parameter")), object()),  # named, and not called
    **{("torch", name): storage for name, storage in _STORAGES.items()},
    ("torch.storage", "UntypedStorage"): _Storage(1),
    ("collections", "OrderedDict"): KNOWN["collections", "OrderedDict"],
    **{place: value for place, value in KNOWN.items() if isinstance(value, torch.dtype)},
    ("torch", "Size"): KNOWN["torch", "Size"],
}


class Shape(BoundedUnpickler):
    """Goes through a pickle as torch does, and makes no tensor."""

    def __init__(self, file: IO[bytes], sizes: dict[str, int], also: Mapping[tuple[str, str], Any]) -> None:
        super().__init__(file)
        self.sizes, self._also, self._kinds = sizes, also, dict[str, _Storage]()
        self.copied = 0
        """Bytes of a copy of each tensor."""

    def load(self) -> Any:
        value = super().load()
        if self.copied > _COPIES * (sum(self.sizes.values()) + self._file.tell()):
            raise ValueError("has tensors that are much longer than all storages")
        return value

    def find_class(self, module: str, name: str) -> Any:
        known = self._also.get((module, name), _TENSORS.get((module, name)))
        if known is None:
            raise Refused(f"{module}.{name}")
        return known

    def persistent_load(self, pid: Any) -> _Held:
        """A storage, which is as long as its member: torch reads as much as is said, whatever the member has."""
        storage, kind, key, location, entries = pid
        if storage != "storage" or type(key) is not str or type(location) is not str or type(entries) is not int:
            raise ValueError("asks for what is no storage")
        known = isinstance(kind, _Storage) and self._kinds.setdefault(key, kind) is kind
        if not known or self.sizes[key] != entries * kind.itemsize:
            raise ValueError(f"has a storage {key!r:.20} of another length than is said")
        return _Held(self.sizes[key], kind.itemsize, self)
