"""A folder that is read for minutes is the one at the end that it was at the beginning.

A run that was set back writes its checkpoints anew, and one that goes on removes its oldest; weights read meanwhile
would be half of the one and half of the other, with nothing about them that looks damaged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_ISREG

from ..system.errors import MemAgentError


class FolderReplaced(MemAgentError):
    """A folder was written anew or removed while it was read."""


@contextlib.contextmanager
def unreplaced(folder: Path) -> Iterator[Callable[[], None]]:
    """Gives what raises FolderReplaced if ``folder`` is not as it was, to be called when all was read. An error of the
    block becomes FolderReplaced as well, if that is what it comes of.
    """
    before = _files(folder)

    def confirm() -> None:
        if not before <= _files(folder):  # others may put theirs beside it, as notes or a model that is made of it
            raise FolderReplaced(f"{folder}: was written anew or removed while it was read; run again")

    try:
        yield confirm
    except Exception as error:
        try:
            confirm()
        except FolderReplaced as cause:
            raise cause from error
        raise


def _files(folder: Path) -> set[tuple[str, int, int, int]]:
    """What differs when a file in ``folder`` was written since, in place or under a new folder of that name."""
    found = set()
    with contextlib.suppress(FileNotFoundError):
        for file in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # gone meanwhile, or a link to nothing
                stat = file.stat()
                if S_ISREG(stat.st_mode):
                    found.add((file.name, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return found
