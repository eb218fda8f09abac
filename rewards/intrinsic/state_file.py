"""A memory on disk: one .npz archive, ``np.load`` reads it; nothing in it is code.

Every member has a CRC-32, and all of them are read to their end, so a byte that changed is seen. Arrays are written
and read in pieces, never copied as a whole. The same content gives the same bytes.

    about.json            format, mode, embedding model: what must fit before anything else is read
    success.values.npy    arrays by name
"""

from __future__ import annotations

import json
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ...system.atomic_file import replacing
from ...system.errors import ConfigError, reason_of

Array = NDArray[Any]
_ABOUT = "about.json"
_DAMAGE = (
    zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError, struct.error, zlib.error, IndexError, TypeError,
    NotImplementedError, RuntimeError, ArithmeticError, AssertionError, MemoryError, tokenize.TokenError, SyntaxError,
)
"""What reading a damaged archive may raise."""


@dataclass(frozen=True)
class Pieces:
    """An array as its parts along the first axis."""

    shape: tuple[int, ...]
    dtype: Any
    parts: Iterable[Array]


def write(path: Path, about: Mapping[str, Any], arrays: Mapping[str, Array | Pieces]) -> None:
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_ABOUT), json.dumps(about, sort_keys=True))
        for name, array in arrays.items():
            whole = array if isinstance(array, Pieces) else Pieces(array.shape, array.dtype, [array])
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                _write_array(member, whole)


def _write_array(member: IO[bytes], array: Pieces) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(array.dtype)), "fortran_order": False,
              "shape": array.shape}
    np.lib.format.write_array_header_1_0(member, header)
    for part in array.parts:
        member.write(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)


class Archive:
    """An open file of ``write``."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self.about: Mapping[str, Any] = json.loads(archive.read(_ABOUT))

    def array(self, name: str) -> Array:
        with self._archive.open(f"{name}.npy") as member:
            shape, dtype = _header(member)
            content = member.read()
            _expect(len(content) == int(np.prod(shape)) * dtype.itemsize, name)
            return np.frombuffer(content, dtype).reshape(shape)

    def numbers(self, name: str) -> list[float]:
        """An array of finite ones, in one dimension."""
        found = [float(number) for number in self.array(name)]
        _expect(all(map(math.isfinite, found)), name)
        return found

    def pieces(self, name: str, lengths: Iterable[int]) -> Iterator[Array]:
        """The array in parts of these lengths along its first axis."""
        with self._archive.open(f"{name}.npy") as member:
            shape, dtype = _header(member)
            width = int(np.prod(shape[1:])) * dtype.itemsize
            for length in lengths:
                content = member.read(length * width)
                _expect(len(content) == length * width, name)
                yield np.frombuffer(content, dtype).reshape(length, *shape[1:])
            _expect(not member.read(1), name)  # also checks the sum


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(member)
    _expect(version == (1, 0), "version")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
    _expect(not fortran and not dtype.hasobject, "header")
    return shape, dtype


def _expect(condition: bool, name: str) -> None:
    if not condition:
        raise ValueError(f"{name} is not whole")


@contextmanager
def reading(path: Path) -> Iterator[Archive]:
    """The archive at ``path``; all that is wrong with it is one line, and nothing is written.

    Raises:
        ConfigError: it is not there, or damaged, or the block raised it.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: the memory of MEM_IR is not there; set MEM_IR as it was, or start a new SAVE_PATH")
    try:
        with zipfile.ZipFile(path) as archive:
            _expect(sum(info.file_size for info in archive.infolist()) <= path.stat().st_size, "archive")
            yield Archive(archive)
    except ConfigError:
        raise
    except _DAMAGE as error:
        raise ConfigError(
            f"{path}: the memory is damaged ({reason_of(error, 120)}) and was left as it is; "
            "go back to a checkpoint whose reward_state is whole, or start a new SAVE_PATH"
        ) from error
