"""A model's ``pytorch_model.bin``, looked at before ``torch.load`` reads it, as checkpoints are (``torch_files.py``).

Some embedding models have no other weights, bge-m3 for one, so they are read by torch, as weights only. That runs
nothing, but 900 bytes keep it busy for ever, or take all memory. What is in such a file is a dict of tensors with the
versions of the layers that had them::

    PK 3 4  archive/data.pkl ...                       since torch 1.6, in 2020: a zip file
    0x1950a86a20f9469cfc6c, 1001, {system}, {tensors}, [keys], storages     before: five pickles and the numbers

Invariant: of both forms, what passes takes no more time and memory than it is long. Nor is it a tar, in which torch
looks for weights before it looks for the second form, and before it says that it takes none of a tar: its first header
may have Python search a text for longer than anybody waits.
"""

from __future__ import annotations

import tarfile
from collections import OrderedDict
from pathlib import Path
from typing import IO, Any

from ..system.errors import ConfigError, reason_of
from .bounded_pickle import LONGEST, Refused
from .tensor_pickle import Shape
from .torch_files import opened

_ZIP, _OLD = b"PK\3\4", 0x1950A86A20F9469CFC6C
_LENGTH = 8
"""Bytes before a storage of the old form, which say how many numbers it has."""


def check_weights(file: Path) -> None:
    """That torch may have written it, numbers aside.

    Raises:
        ConfigError: something else has.
    """
    try:
        length = file.stat().st_size
        with file.open("rb") as content:
            if content.read(len(_ZIP)) == _ZIP:
                content.seek(0)
                _Weights(*opened(content, length, every_byte=False), {}).load()
            else:
                content.seek(0)
                if _is_tar(content.read(tarfile.BLOCKSIZE)):
                    raise ValueError("is a tar")
                content.seek(0)
                _check_old(_Within(content, length))
    except OSError:
        raise
    except Refused as error:
        raise ConfigError(f"{file}: asks for {str(error)[:80]!r}, which weights have no need of; it may be an attack; "
                          "use model.safetensors") from None
    except Exception as error:  # unpickling what nobody knows ends in many types
        raise ConfigError(f"{file}: is no file of weights that torch has written ({reason_of(error)}); "
                          "use model.safetensors, or delete it where that is there") from None


def _is_tar(first: bytes) -> bool:
    """Whether Python reads on behind the ``first`` block of a file: that holds its own checksum, as no weights do."""
    try:
        tarfile.TarInfo.frombuf(first, tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


class _Weights(Shape):
    def gives(self, of: Any, state: Any) -> bool:
        """Also what a ``state_dict`` has as ``_metadata``."""
        if type(of) is not OrderedDict:
            return super().gives(of, state)
        return type(state) is dict and set(state) == {"_metadata"} and all(
            type(name) is str and type(said) is dict and len(said) <= LONGEST
            and all(type(key) is str and isinstance(value, bool | int | str | None) for key, value in said.items())
            for name, said in state["_metadata"].items()
        )


class _OldWeights(_Weights):
    """Whose storages come behind it: it says itself how long they are."""

    def persistent_load(self, pid: Any) -> Any:
        *known, view = pid
        _, kind, key, _, entries = known
        if view is not None or type(entries) is not int or entries < 0:
            raise ValueError("has a storage that is a part of another, or none")
        self.sizes.setdefault(key, entries * kind.itemsize)
        return super().persistent_load(known)


class _Within:
    """A file of which no more is asked for than it has: ``read`` takes memory for what it is asked for."""

    def __init__(self, file: IO[bytes], length: int) -> None:
        self._file, self.length = file, length

    def read(self, size: int) -> bytes:
        return self._file.read(min(size, self.length - self._file.tell()))

    def readline(self) -> bytes:
        return self._file.readline()

    def tell(self) -> int:
        return self._file.tell()


def _check_old(file: Any) -> None:
    if Shape(file, {}, {}).load() != _OLD:
        raise ValueError("begins as nothing that torch writes")
    for _ in ("the version", "the system"):
        Shape(file, {}, {}).load()
    tensors = _OldWeights(file, {}, {})
    tensors.load()
    keys = Shape(file, {}, {}).load()
    if type(keys) is not list or sorted(keys) != sorted(tensors.sizes):
        raise ValueError("has other storages than its tensors are in")
    if sum(_LENGTH + size for size in tensors.sizes.values()) > file.length - file.tell():
        raise ValueError("is cut")
