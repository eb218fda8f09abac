"""Opens one parquet file again and again, and parses its footer once.

A footer has kilobytes for each row group, so who opens the file for every row read it all for every row. It is parsed
again where the open file is another than before: by device, inode, size and times of the file that is read from, so
no footer is used for pages that it is not of. If it then says anything else, the file was written anew and is not
read; one that was touched, or copied to its place, says the same. It is shared by threads and forked processes, and
pickles as its path alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..system.errors import MemAgentError

_Which = tuple[int, ...]


class WrittenAnew(MemAgentError):
    """The file is not the one that was opened first; the message names it and the remedy."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: has been written anew while it was read; start again")


class KeptFooter:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: tuple[_Which | None, Any] = None, None
        """One value, so that threads never see the footer of one file with the marks of another."""

    def __reduce__(self) -> tuple[type[KeptFooter], tuple[Path]]:
        return KeptFooter, (self.path,)

    @contextmanager
    def open(self) -> Iterator[Any]:
        """A ``pyarrow.parquet.ParquetFile``. Raises WrittenAnew, and what opening one raises."""
        import pyarrow.parquet as pq  # here: JSON lines are read without it

        with self.path.open("rb") as opened:
            which = _which(opened.fileno())
            known, footer = self._kept
            with pq.ParquetFile(opened, metadata=footer if known == which else None, pre_buffer=False) as file:
                if known != which:
                    if footer is not None and not footer.equals(file.metadata):
                        raise WrittenAnew(self.path)
                    self._kept = which, file.metadata
                yield file


def _which(descriptor: int) -> _Which:
    about = os.fstat(descriptor)
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns
