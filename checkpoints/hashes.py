"""The hash of every file in a folder, written when all of them are, so that one that changed since is not used.

``SHA256SUMS`` has the lines of ``sha256sum``, which checks them too (``sha256sum -c SHA256SUMS``); the first is the
hash of those below it::

    # 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03
    2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae  .metadata
    fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9  __0_0.distcp

It tells damage, not forgery: whoever changes a file on purpose can write its hash as well. Files that are not listed
are nobody's business, and so is a list of somebody else in a folder that was downloaded: it begins with a file's line
or with words, which no damage makes of the first line of ours. Of the hashes that Python has, SHA-256 takes the least
time where the processor knows it.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from ..system.atomic_file import write_atomically
from .damage import damaged

logger = logging.getLogger("mem_agent")

HASHES = "SHA256SUMS"
_FILE_BY_GNU = r"\\?[0-9a-fA-F]{32,128} [ *]\S"
_FILE_BY_BSD = r"[A-Z]+[0-9]* ?\("
_WORDS = r"(?!.*[0-9a-f]{16}).*[g-zG-Z]"
_OF_OTHERS = re.compile(f"{_FILE_BY_GNU}|{_FILE_BY_BSD}|{_WORDS}")
"""How a list that this pack has not written begins."""


def write_hashes(folder: Path, pattern: str = "*") -> None:
    """Those of the files that ``pattern`` fits; the last thing that is written into ``folder``."""
    names = sorted(file.name for file in folder.glob(pattern) if file.is_file() and file.name != HASHES)
    text = "".join(f"{digest}  {name}\n" for name, digest in zip(names, _digests(folder, names), strict=True))
    write_atomically(folder / HASHES, f"# {_of_text(text)}\n{text}".encode())


def check_hashes(folder: Path) -> None:
    """That all files are as they were when their hashes were written; folders without hashes of ours pass.

    Raises:
        DamagedCheckpoint: a file has changed or is gone: the message names it.
    """
    if not (folder / HASHES).exists():
        logger.info("%s has no %s: its files are used without a check", folder, HASHES)
        return
    hashes = _read(folder)
    if hashes is None:
        logger.info("%s has a %s of somebody else: its files are used without a check", folder, HASHES)
        return
    for name in hashes:
        if not (folder / name).is_file():
            raise damaged(folder, name, "is missing")
    try:
        digests = _digests(folder, list(hashes))
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise damaged(folder, Path(error.filename or "a file").name, "the disk does not give it back") from error
    for (name, expected), found in zip(hashes.items(), digests, strict=True):
        if found != expected:
            raise damaged(folder, name, f"is not as it was written, its hash in {HASHES} is another")


def _read(folder: Path) -> Mapping[str, str] | None:
    """Hash by name; None for a list of somebody else."""
    if not (folder / HASHES).is_file():
        raise damaged(folder, HASHES, "is no file")
    head, _, text = (folder / HASHES).read_bytes().decode(errors="replace").partition("\n")
    if _OF_OTHERS.match(head):
        return None
    lines = [re.fullmatch(r"([0-9a-f]{64})  (\S.*)", line) for line in text.splitlines()]
    if head != f"# {_of_text(text)}" or None in lines:
        raise damaged(folder, HASHES, "is not as it was written")
    hashes = {line[2]: line[1] for line in lines if line}
    for name in hashes:
        if name != PurePosixPath(name).name:
            raise damaged(folder, HASHES, f"names {name[:80]!r}, outside of it")
    return hashes


def _digests(folder: Path, names: list[str]) -> list[str]:
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda name: _of_file(folder / name), names))


def _of_file(path: Path) -> str:
    with path.open("rb") as file:
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:  # of a read that fails, which names no file
            raise OSError(error.errno, error.strerror, str(path)) from None


def _of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
