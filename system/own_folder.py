"""A temporary folder of one process: whatever becomes of that process, the folder goes with it, or with the next one.

Its owner removes it when it ends, and guards do when the owner was killed (``guard.py``). Where those were killed as
well, as by a job's end, nobody is left to do it; so whoever makes such a folder first removes those whose owners are
gone. An owner holds a lock on the folder itself, which the system takes back when it ends, however::

    mem_agent-weights-5e1f-a1   locked: its owner lives, in this container or another one
    mem_agent-weights-5e1f-b2   not locked: removed
    mem_agent-weights-90c3-c3   of another machine: stays

A disk that machines share may show each its own locks alone (BeeGFS, Lustre's ``localflock``), so a name says of which
machine it is, since when. Where the file system knows no locks nothing of others is removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
"""The same in all containers of a machine, whose locks are the same as well."""


@dataclass
class OwnFolder:
    path: Path
    _lock: int

    def make_again(self) -> None:
        """Where somebody has removed it, under its name, which guards know; then it is empty.

        Raises:
            FileExistsError: another user has been the first to take the name.
        """
        while not self._is_there():
            if not made_ours(self.path):
                raise FileExistsError(errno.EEXIST, "another user's lies in its place", str(self.path))
            if self._lock >= 0:
                os.close(self._lock)
            self._lock = _locked(self.path, fcntl.LOCK_SH)  # until then it looks abandoned, and may go once more

    def _is_there(self) -> bool:
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return False
        ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        return ours and (self._lock < 0 or os.path.samestat(os.fstat(self._lock), found))

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def own_folder(parent: Path, prefix: str) -> OwnFolder:
    """A new empty folder in ``parent``, which only this user reads."""
    prefix = f"{prefix}{machine()}-"
    _remove_abandoned(parent, prefix)
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = _locked(path, fcntl.LOCK_SH)
        if path.exists():  # between the two it looked abandoned
            return OwnFolder(path, lock)
        if lock >= 0:
            os.close(lock)


def made_ours(folder: Path) -> bool:
    """Make a folder that is kept, for this user alone; False where the name is another user's, or a link's."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if ours:
        folder.chmod(0o700)
    return ours


def machine() -> str:
    """Four letters that tell apart those whose locks are not seen by each other."""
    name = _BOOT.read_text() if _BOOT.is_file() else os.uname().nodename
    return hashlib.sha256(name.encode()).hexdigest()[:4]


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove this user's folders in ``parent`` whose owners are gone."""
    for path in parent.glob(f"{prefix}*"):
        lock = _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock >= 0:
            if os.fstat(lock).st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _locked(path: Path, how: int) -> int:
    """An open file with this lock on the folder; -1 where it cannot be had, or is no folder."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # no folder, another user's, or somebody else has just removed it
        return -1
    try:
        fcntl.flock(file, how)
    except OSError:  # held, or a file system without locks
        os.close(file)
        return -1
    return file
