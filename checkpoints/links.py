"""Links in a model's folder, which others may have made: where they lead decides whether a copy or an upload follows.

Invariant: nothing of this user's comes into a folder, or to the hub, because a stranger's model has a link to it. So a
link is followed within the model's folder, and to what only those can name who know what it holds: files of the hub's
cache, and files anywhere that have the hash of their content in their name::

    models--a--b/snapshots/0f/tokenizer.json -> ../../blobs/6b                          followed, wherever the cache is
    model/tokenizer.json -> /annex/SHA256E-s9--2c26b46b68ff....json                     followed if that is its hash
    model/tokenizer.json -> /home/me/.netrc                                             refused
    mine/tokenizer.json -> ../base/tokenizer.json                                       refused: whose is it?
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from ..system.links import real_path

_HASH = re.compile(r"(?<![0-9a-f])([0-9a-f]{64}|[0-9a-f]{40})(?![0-9a-f])")


def leads_out(file: Path, model: Path) -> bool:
    """Whether ``file`` of the folder ``model`` is one elsewhere that its maker could name without knowing it."""
    target, home = real_path(file), real_path(model)
    return not (target.is_relative_to(home) or _is_cached(target, home) or _is_named_by_its_hash(target))


def _is_cached(target: Path, home: Path) -> bool:
    """Whether it is a blob of the hub's cache, whose names are hashes: of any model, or of the one ``home`` is of."""
    if target.parent.name != "blobs" or not _HASH.fullmatch(target.name):
        return False
    repository = target.parents[1]
    return repository.name.startswith("models--") or home.is_relative_to(repository / "snapshots")


def _is_named_by_its_hash(target: Path) -> bool:
    """Whether the name holds SHA-256 of the content, or git's hash of it: blobs of a cache whose folder is a link."""
    named = _HASH.search(target.name)
    if named is None or not target.is_file():
        return False
    is_git = len(named[1]) == 40
    digest = hashlib.sha1(usedforsecurity=False) if is_git else hashlib.sha256()
    digest.update(b"blob %d\0" % target.stat().st_size if is_git else b"")
    with target.open("rb") as content:
        hashlib.file_digest(content, lambda: digest)
    return digest.hexdigest() == named[1]
