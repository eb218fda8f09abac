"""A file that is either the old one or the new one, never half of either; one that grows at its end; one that has no
name; one that its owner alone may read. All of the pack's files are written here, but for those in
``tests/system/test_writers.py``.

What is written is a regular file or nothing yet. A link stays a link, and the file it leads to is written, where that
is one of the link's own folder: what leads out of it is refused, as the folder may be a stranger's, and the file that
it leads to the user's (``report/questions.csv -> ../../../.bashrc``). A device, a FIFO, a folder or an open file
descriptor (``/dev/stdout``) is refused: a rename would put a file in its place, and ``/dev/null`` would be gone for
everybody. A file that has other names (hard links) is replaced and not changed: an archive makes such of the user's
files. An error of a write names the file.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from .errors import MemAgentError
from .links import real_path, remedy, remedy_of_names

_DRAFT = re.compile(r"\.(.+)\.[0-9]+\.tmp")
_MOST_LINKS = 40
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DESCRIPTORS = Path("/proc")
_OF_A_NEW_FILE = 0o666
"""Of which the system takes the user's umask off."""


class NotAFile(MemAgentError, OSError):
    """Something that is no regular file lies where a file would be written, a link to one that is elsewhere, or a file
    that has other names: the message says which, and the remedy.
    """


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path``, on disk, when the block ends well, and vanishes otherwise. Whom the old
    one was closed to, this one is.

    Raises:
        NotAFile: a folder, a device, a link to elsewhere or the like is in its place.
    """
    target = file_to_write(path)
    draft, opened = _opened_draft(target)
    try:
        with full_disk_named(target), io.BufferedWriter(opened) as file:
            yield file
            file.flush()
            with _named(target):
                os.fsync(file.fileno())
        with _named(target):
            draft.replace(target)
    finally:
        with suppress(OSError):  # what went wrong before is told
            draft.unlink()


def draft_of(path: Path) -> Path:
    """Where this process writes what will be ``path``."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def remove_drafts(folder: Path, of: str | None = None) -> None:
    """Remove what killed processes have left in ``folder`` of the file named ``of``, or of all. The drafts of those
    that live stay, and where the file system has no locks to tell, all do.
    """
    for draft in folder.iterdir():
        named = _DRAFT.fullmatch(draft.name)
        if named and of in (None, named[1]) and draft.is_file():
            with suppress(OSError), draft.open("r+b") as file:  # NFS wants it open for writing
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                draft.unlink()


def _opened_draft(target: Path) -> tuple[Path, _NamedFile]:
    """Locked, so that ``remove_drafts`` of another process lets it be.

    What lies there already is of a process that was killed, or of whoever made the folder: if it is not a file of that
    name alone, or open to more, another name is taken, which nobody could guess.
    """
    draft, mode, permissions = draft_of(target), "wb", _permissions(target)
    while True:
        try:
            file = _NamedFile(draft, mode, target, partial(_opened_as_it_lies, permissions=permissions))
        except OSError:
            if mode == "xb":
                raise
        else:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            is_there = draft.exists()  # between the two it may have looked abandoned
            if is_there and (mode == "xb" or _may_be_taken(file, permissions)):
                with _named(target):
                    file.truncate()
                return draft, file
            file.close()
        draft, mode = target.with_name(f".{target.name}.{secrets.randbelow(10**12)}.tmp"), "xb"


def _permissions(target: Path) -> int:
    """Of what replaces it, from the beginning: those of a new file, which its owner may write, less what others were
    not permitted. None are added: who has made the old one may be a stranger.
    """
    try:
        return (target.stat().st_mode | 0o700) & _OF_A_NEW_FILE
    except (FileNotFoundError, NotADirectoryError):
        return _OF_A_NEW_FILE


def _opened_as_it_lies(path: str, flags: int, permissions: int = _OF_A_NEW_FILE) -> int:
    """Through no link, without waiting for a FIFO's reader, and before it is looked at nothing of it is cut."""
    opened = os.open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK, permissions)
    os.set_blocking(opened, True)  # a program that is started may get it
    return opened


def _may_be_taken(file: io.FileIO, permissions: int) -> bool:
    """Whether it is a file of one name, and open to no more; there are file systems on which all may be executed."""
    about = os.fstat(file.fileno())
    return stat.S_ISREG(about.st_mode) and about.st_nlink == 1 and not about.st_mode & _OF_A_NEW_FILE & ~permissions


def write_atomically(path: Path, content: bytes) -> None:
    """Replace ``path``'s content by one rename."""
    with replacing(path) as file:
        file.write(content)


def appending(path: Path) -> io.FileIO:
    """``path``, made where it is not there, to be written at its end; unbuffered, and a write may be short.

    Raises:
        NotAFile: a folder, a device, a link to elsewhere, a file that has other names or the like is in its place.
    """
    return _changed_in_place(path, "ab")


def cut(path: Path, end: int) -> None:
    """Take off what stands behind ``end`` of a file that is there. Raises NotAFile as ``appending`` does."""
    with _changed_in_place(path, "rb+") as file:
        file.truncate(end)


def _changed_in_place(path: Path, mode: str) -> io.FileIO:
    target = file_to_write(path)
    file = _NamedFile(target, mode, path, _opened_as_it_lies)
    if os.fstat(file.fileno()).st_nlink > 1:
        file.close()
        what = "has other names (hard links), under which it would change as well, and is not written"
        raise NotAFile(f"{path}: {what}; {remedy_of_names(target)}")
    return file


def set_apart(path: Path) -> None:
    """Before ``appending``, of a run that is not to end where somebody has copied its folder with ``cp -al``: a copy
    takes the file's place, and its other names keep what is there now.
    """
    if path.is_file() and path.stat().st_nlink > 1:
        with path.open("rb") as old, replacing(path) as new:
            shutil.copyfileobj(old, new)


def append_whole(file: io.FileIO, content: bytes) -> None:
    """All of it at the end of what ``appending`` gave, or else nothing: the next line would join half of one."""
    end = os.fstat(file.fileno()).st_size
    rest = memoryview(content)
    try:
        while rest:
            rest = rest[file.write(rest):]
    except BaseException:
        file.truncate(end)
        raise


def nameless(folder: Path) -> io.FileIO:
    """A file of ``folder`` to write and read, unbuffered as ``appending``'s, which the system takes back when the
    process ends, however it ends; its errors name the folder. The system's own place for such may be memory.
    """
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        return _NamedFile(os.dup(file.fileno()), "rb+", folder)


def write_for_owner(path: Path, content: bytes) -> None:
    """A new file that nobody else may read, not for a moment either; what lay there before, which others may have
    open, or a link, is gone.
    """
    with _named(path):
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)


class _NamedFile(io.FileIO):
    """Its errors say which file that is: those of a file that is open do not, those of a draft name the draft."""

    def __init__(
        self, file: Path | int, mode: str, name: Path, opener: Callable[[str, int], int] | None = None
    ) -> None:
        with _named(name):
            super().__init__(file, mode, opener=opener)
        self._told = name

    def write(self, content: Any) -> int:
        with _named(self._told):
            return super().write(content)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def full_disk_named(path: Path) -> Iterator[None]:
    """A full disk's error says nothing but that; it gets the file's name."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _FULL:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def file_to_write(path: Path) -> Path:
    """The regular file that ``path`` leads to, or the place where it would be made. Raises NotAFile."""
    target = path
    for _ in range(_MOST_LINKS):
        if Path(os.path.realpath(target.parent)).is_relative_to(_DESCRIPTORS):
            break
        if not target.is_symlink():
            if target.exists() and not target.is_file():
                break
            if not real_path(target).is_relative_to(real_path(path.parent)):
                what = "is a link out of the folder that it lies in, and is not followed"
                raise NotAFile(f"{path}: {what}; {remedy(path)}")
            return target
        target = target.parent / target.readlink()
    kind = "a folder" if target.is_dir() else "no regular file"
    raise NotAFile(f"{path}: is {kind} and stays as it is; name a file to write")
