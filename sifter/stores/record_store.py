"""Arrays of one length by the text they belong to, on disk: append-only, for many processes, safe to kill.

::

    about.json   whose values they are: {"fingerprint": "3f2a...", "width": 384, "dtype": "float32"}
    keys.bin     16 bytes of SHA-256 of the text, and the CRC-32 of its value, each
    values.bin   the values, end to end, in the same order

Invariants:
- A value counts once its key is on disk, and its key is written after it. What a kill leaves behind the last key is
  cut off by the next writer, which holds a lock on ``keys.bin`` as long as it writes.
- A value that its CRC does not fit is as if it were not there: it is computed and added again, the last one counts,
  and all others stay.
- An about.json that is lost or damaged is written again: the folder's name says whose values they are, and their CRCs
  how long each is.
- Memory: 36 bytes a text. Values are mapped, not read.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from ...rewards.intrinsic.encoder import WIDEST
from ...system import bounded_json
from ...system.atomic_file import NotAFile, append_whole, appending, full_disk_named, write_atomically
from ...system.errors import MemAgentError

_FILES = ("keys.bin", "values.bin")
_KEY = np.dtype([("high", "<u8"), ("low", "<u8"), ("crc", "<u4")])
Values = npt.NDArray[Any]


class StoreRefused(MemAgentError):
    """A store of something else, or one that cannot be read; the message says which, and the remedy."""


def key_of(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


class RecordStore:
    """Values of ``dtype``, ``width`` each, of what has this ``fingerprint``. Raises StoreRefused."""

    def __init__(self, folder: Path, fingerprint: str, dtype: str, width: int | None = None) -> None:
        self.folder, self._fingerprint = folder, fingerprint
        self._dtype, self._width = np.dtype(dtype), width
        self._keys = np.empty(0, _KEY)
        self._order = np.empty(0, np.int64)
        self._highs = np.empty(0, np.uint64)
        self._fresh: dict[bytes, int] = {}
        self._damaged = False
        self._count = 0
        self._read_about()
        self._refresh()

    def __len__(self) -> int:
        """Records, those of damaged values and their successors included."""
        return self._count

    def find(self, keys: Sequence[bytes]) -> tuple[Values, npt.NDArray[np.bool_]]:
        """``[keys, width]`` and which of them are there; the values of others are 0."""
        rows = self._rows(keys)
        found = np.zeros((len(keys), self._width or 0), self._dtype)
        there = rows >= 0
        if there.any():
            values = np.memmap(self.folder / "values.bin", self._dtype, "r", shape=(self._count, self._width or 0))
            found[there] = values[rows[there]]
            for number in np.flatnonzero(there):
                there[number] = zlib.crc32(found[number].tobytes()) == self._crc(rows[number])
            found[~there] = 0
        return found, there

    def missing(self, keys: Sequence[bytes]) -> list[int]:
        """Which of ``keys``, by number, have no good value."""
        return [int(number) for number in np.flatnonzero(~self.find(keys)[1])]

    def add(self, keys: Sequence[bytes], values: Values) -> None:
        """They are on disk when this returns; what another process has added meanwhile stays."""
        assert values.ndim == 2 and len(values) == len(keys), (values.shape, len(keys))
        with full_disk_named(self.folder), self._writing(values.shape[1]) as (key_file, value_file):
            new = list({keys[number]: number for number in self.missing(keys)}.values())
            chosen = np.ascontiguousarray(values[new], self._dtype)
            entries = np.zeros(len(new), _KEY)
            for place, number in enumerate(new):
                high, low = np.frombuffer(keys[number], "<u8")
                entries[place] = (high, low, zlib.crc32(chosen[place].tobytes()))
            for file, content in ((value_file, chosen), (key_file, entries)):
                append_whole(file, content.tobytes())
                os.fsync(file.fileno())
            self._fresh |= {keys[number]: self._count + place for place, number in enumerate(new)}
            self._keys = np.concatenate([self._keys, entries])
            self._count += len(new)

    def _rows(self, keys: Sequence[bytes]) -> npt.NDArray[np.int64]:
        wanted = np.frombuffer(b"".join(keys), "<u8").reshape(len(keys), 2)
        places = np.searchsorted(self._highs, wanted[:, 0], side="right") - 1  # the last of equal keys
        rows = np.full(len(keys), -1, np.int64)
        for number, place in enumerate(places):
            fresh = self._fresh.get(bytes(keys[number]))
            if fresh is not None:
                rows[number] = fresh
            elif place >= 0 and self._highs[place] == wanted[number, 0]:
                row = self._order[place]
                rows[number] = row if self._keys["low"][row] == wanted[number, 1] else -1
        return rows

    def _crc(self, row: int) -> int:
        return int(self._keys["crc"][row])

    def _refresh(self) -> None:
        """Read what other processes have added."""
        keys, values = self.folder / "keys.bin", self.folder / "values.bin"
        if self._width is None or not keys.exists() or not values.exists():
            return
        size = self._dtype.itemsize * self._width
        count = min(keys.stat().st_size // _KEY.itemsize, values.stat().st_size // size)
        if count != self._count:
            self._keys = np.fromfile(keys, _KEY, count)
            self._order = np.argsort(self._keys["high"], kind="stable")
            self._highs = self._keys["high"][self._order]
            self._fresh, self._count = {}, count

    @contextmanager
    def _writing(self, width: int) -> Iterator[tuple[FileIO, FileIO]]:
        if self._width is None:
            self._width = width
        if width != self._width:
            raise StoreRefused(f"{self.folder}: holds values of {self._width}, not of {width}; delete the folder")
        files = self._opened()
        try:
            with suppress(OSError):  # where the file system has no locks, one process may write
                fcntl.flock(files[0], fcntl.LOCK_EX)
            if self._damaged or not (self.folder / "about.json").exists():
                about = {"fingerprint": self._fingerprint, "width": width, "dtype": self._dtype.name}
                write_atomically(self.folder / "about.json", orjson.dumps(about))
                self._damaged = False
            self._refresh()
            files[0].truncate(self._count * _KEY.itemsize)
            files[1].truncate(self._count * self._dtype.itemsize * width)
            yield files[0], files[1]
        finally:
            for file in files:
                file.close()

    def _opened(self) -> list[FileIO]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return [appending(self.folder / name) for name in _FILES]
        except NotAFile:
            raise
        except OSError as error:
            raise StoreRefused(f"{self.folder}: cannot be written ({error.strerror}); name another folder") from None

    def _read_about(self) -> None:
        path = self.folder / "about.json"
        if not path.exists():
            self._width = self._width or self._found_width()
            return
        try:
            about = bounded_json.loads(path.read_bytes())
            fingerprint, width, dtype = str(about["fingerprint"]), about["width"], str(about["dtype"])
            if type(width) is not int or width < 1:
                raise ValueError(width)
        except (LookupError, TypeError, ValueError):
            self._width = self._width or self._found_width()
            print(f"{path}: is damaged, and is written again", file=sys.stderr)
            self._damaged = True  # it goes under the lock: another process may have written a good one since
            return
        own = (self._fingerprint, self._dtype.name, self._width if self._width is not None else width)
        if (fingerprint, dtype, width) != own:
            raise StoreRefused(f"{self.folder}: holds {dtype} values of {width} of {fingerprint}, not {own[1]} of "
                               f"{own[2]} of {own[0]}; name another folder, or delete this one")
        self._width = width


    def _found_width(self) -> int | None:
        """Of values without their about.json: the length at which they fit their CRCs, of all that vectors may have;
        None where there are none.

        Raises StoreRefused where none does.
        """
        keys, values = (self.folder / name for name in _FILES)
        if not keys.exists() or not values.exists():
            return None
        crcs = np.fromfile(keys, _KEY)["crc"]
        content = np.memmap(values, np.uint8, "r") if values.stat().st_size else np.empty(0, np.uint8)
        some = np.unique(np.linspace(0, len(crcs) - 1, min(9, len(crcs)), dtype=np.int64))
        room = len(content) // (max(1, len(crcs)) * self._dtype.itemsize)
        for width in range(1, min(room, WIDEST) + 1):
            size = width * self._dtype.itemsize
            fits = [zlib.crc32(content[row * size:(row + 1) * size].tobytes()) == crcs[row] for row in some]
            if 2 * sum(fits) > len(fits):
                return width
        if len(crcs):
            raise StoreRefused(f"{self.folder}: about.json is lost or damaged, and the values do not fit their keys; "
                               "delete the folder, and it is made again")
        return None
