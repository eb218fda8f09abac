"""What ``torch.save`` wrote, looked at before ``torch.load`` reads it: ``common.pt``, and each tensor in ``.distcp``.

As weights only torch runs nothing that a file asks for, but bounds neither time nor memory: a pickle of 500 bytes
keeps it busy for seconds, and twice as long for each pair more; what is packed unpacks to a thousand times its length;
a call makes as many bytes as it is given for a number. A file that torch has written has none of that::

    PK 3 4  archive/data.pkl     what to make of the storages, by four names of torch's
    PK 3 4  archive/byteorder    of the storages; torch turns one that is not this machine's, its bytes there or not
    PK 3 4  archive/data/0       a storage, as long as data.pkl says
    PK 1 2 ...                   the list of these, once, up to the end

Invariant: what passes takes no more time and memory than it is long, and torch sees in it what was looked at here. So
it begins as a zip, else torch takes it for the format of before zips; its list is where every reader of zips looks for
it; no member is packed, and no two have one name, as torch looks them up without case. What the pickle may ask for is
in ``tensor_pickle.py``.
"""

from __future__ import annotations

import io
import math
import struct
import sys
import zipfile
from argparse import Namespace
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata

from .metadata import damage_explained
from .tensor_pickle import Shape

_FIRST, _PICKLE, _ORDER = b"PK\3\4", "data.pkl", "byteorder"
_END, _END64, _FIND64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")


def check_file(file: Path, also: Mapping[tuple[str, str], Any]) -> None:
    """That ``torch.save`` may have written all of it.

    Args:
        also: what it may name beside what tensors are made of.

    Raises:
        Refused: it names something else.
        ValueError: and whatever else reading a broken file raises (``damage_explained``).
    """
    with file.open("rb") as content:
        _check(content, file.stat().st_size, also, every_byte=True)


def check_tensors(folder: str | Path, metadata: Metadata, keys: Iterable[str]) -> None:
    """The same of each part of the tensors ``keys`` of a checkpoint, of which numbers are not read.

    Raises:
        DamagedCheckpoint: torch has not written it.
    """
    for key in keys:
        with damage_explained(folder, ".metadata"):
            places = _places_of(metadata, key)
        for place, taken in places:  # whose fields read_metadata has seen
            with damage_explained(folder, f"{place.relative_path}, {key!r:.80}"):
                if place.transform_descriptors:
                    raise ValueError("is packed, which nothing here unpacks")
                if not (Path(folder) / place.relative_path).is_file():
                    raise ValueError("is missing")
                with (Path(folder) / place.relative_path).open("rb") as file:
                    part = io.BufferedReader(slice_of(file, place))
                    _check(part, place.length, {}, every_byte=False)
                if place.length < taken:  # as numbers may be repeated, which no writer of checkpoints does
                    raise ValueError(f"has {place.length} bytes for a part of {taken}")


def _places_of(metadata: Metadata, key: str) -> list[tuple[_StorageInfo, int]]:
    """Where its parts are, and their bytes in memory: together all of it, as so much is taken before any is read.

    No two share anything, as torch would read that again for each.
    """
    entry = metadata.state_dict_metadata[key]
    assert isinstance(entry, TensorStorageMetadata), key
    starts, sizes = [chunk.offsets for chunk in entry.chunks], [chunk.sizes for chunk in entry.chunks]
    if not all(isinstance(start, torch.Size) for start in starts) or any(
        one == other for one, other in pairwise(sorted(starts))
    ):
        raise ValueError(f"{key!r:.80} has one part twice")
    if not all(isinstance(size, torch.Size) and min(size, default=0) >= 0 for size in sizes):
        raise ValueError(f"{key!r:.80} has a part without a size")
    entries = [math.prod(size) for size in sizes]
    if sum(entries) != math.prod(entry.size):
        lacking = sum(entries) < math.prod(entry.size)
        raise ValueError(f"{key!r:.80} {'lacks a part' if lacking else 'has parts that overlap'}")
    places = [metadata.storage_data[MetadataIndex(key, start)] for start in starts]
    return [(place, n * entry.properties.dtype.itemsize) for place, n in zip(places, entries, strict=True)]


def _check(file: IO[bytes], length: int, also: Mapping[tuple[str, str], Any], *, every_byte: bool) -> None:
    pickled, sizes = opened(file, length, every_byte=every_byte)
    Shape(pickled, sizes, also).load()


def opened(file: IO[bytes], length: int, *, every_byte: bool) -> tuple[IO[bytes], dict[str, int]]:
    """The pickle of a zip file of torch's, and how many bytes each storage has. Raises ValueError and its like."""
    members = _members(file, length)
    with zipfile.ZipFile(file) as archive:
        if every_byte and archive.testzip() is not None:
            raise ValueError("fails its checksum")
        order = archive.read(members[_ORDER]) if _ORDER in members else sys.byteorder.encode()
        if order != sys.byteorder.encode():
            raise ValueError(f"has its bytes in the order {order[:20]!r}, which is not this machine's")
        pickled = io.BytesIO(archive.read(members[_PICKLE]))
    return pickled, {name[5:]: info.file_size for name, info in members.items() if name.startswith("data/")}


def _members(file: IO[bytes], length: int) -> dict[str, zipfile.ZipInfo]:
    """By their names in the archive's folder, in small letters."""
    if file.read(4) != _FIRST:
        raise ValueError("is no zip file from its first byte on")
    _check_list(file, length)
    with zipfile.ZipFile(file) as archive:
        found = archive.infolist()
    folder = found[0].filename.partition("/")[0] if found else ""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in found:
        home, _, name = info.filename.partition("/")
        if home != folder or info.filename != info.orig_filename or not name.isascii() or name.lower() in members:
            raise ValueError(f"has a member {info.orig_filename!r:.80}, which torch has not named")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise ValueError("unpacks to more than its length")
        members[name.lower()] = info
    if sum(info.file_size for info in found) > length:
        raise ValueError("unpacks to more than its length")
    if _PICKLE not in members:
        raise ValueError(f"has no {_PICKLE}")
    return members


def _check_list(file: IO[bytes], length: int) -> None:
    """That the list of members ends where the file does, without a second one that another reader would take."""
    tail = min(length, _END64.size + _FIND64.size + _END.size)
    file.seek(length - tail)
    end = file.read(tail)
    if len(end) < _END.size:
        raise ValueError("is cut")
    _, _, _, _, _, size, start, comment = found = _END.unpack(end[-_END.size:])
    ends = length - _END.size
    if found[0] != b"PK\5\6" or comment:
        raise ValueError("does not end as a zip file of torch's")
    if end[-_END.size - _FIND64.size:].startswith(b"PK\6\7"):
        ends = length - tail
        _, _, at, _ = _FIND64.unpack(end[-_END.size - _FIND64.size : -_END.size])
        signature, *_, size, start = _END64.unpack(end[: _END64.size])
        if signature != b"PK\6\6" or at != ends:
            raise ValueError("has two lists of what is in it")
    if start + size != ends:
        raise ValueError("has a list of what is in it that is not before its end")


class _Slice(io.RawIOBase):
    """A part of a file as a file; torch's own cannot be sought in from its end."""

    def __init__(self, file: IO[bytes], offset: int, length: int) -> None:
        super().__init__()
        self._file, self._offset, self._length, self._at = file, offset, length, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        if start + offset < 0:
            raise ValueError("is cut")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        self._file.seek(self._offset + self._at)
        content = self._file.read(max(0, min(len(buffer), self._length - self._at)))
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


def slice_of(file: IO[bytes], place: _StorageInfo) -> io.RawIOBase:
    return _Slice(file, place.offset, place.length)


def check_spread(value: Any, most: int) -> None:
    """That it has at most ``most`` values, each counted wherever it stands: who shows or copies it takes that long.

    Raises:
        ValueError: it has more, as it is made of the same ones again and again.
    """
    left, seen = [value], 0
    while left:
        inside = left.pop()
        seen += 1
        if isinstance(inside, Namespace):
            inside = vars(inside)
        if isinstance(inside, dict):
            left += inside.keys()
            left += inside.values()
        elif isinstance(inside, list | tuple | set | frozenset):
            left += inside
        if seen + len(left) > most:
            raise ValueError("repeats what is in it until that is longer than the file")
