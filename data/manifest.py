"""A folder of data files with a ``manifest.json`` that says what each was made from.

::

    {"files": {"eval_50.json": {"source": {"kind": "synthesis", "seed": 42, ...}, "sha256": "9f86...", "bytes": 4}}}

Invariants:
- a file stands under its name only when it is whole, and then the manifest has its SHA-256: the entry is written
  before the rename, so an interrupted run leaves at most an entry without a file, which counts as missing;
- a file that is there is used only if it has that SHA-256 and comes from the very same source; it is never
  overwritten: the user removes it, or names another folder;
- manifests hold no times and no paths: equal work gives an equal manifest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from ..system.files import folder_lock, remove_drafts, replacing, write_atomically
from .rows import DataError

MANIFEST, _LOCK = "manifest.json", ".manifest.lock"


class Manifest:
    """The manifest of a folder, for reading; ``locked_manifest`` gives one for writing. Raises DataError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, Any] = {}
        path = folder / MANIFEST
        if path.exists():
            try:
                self.files = dict(orjson.loads(path.read_bytes())["files"])
            except (ValueError, TypeError, KeyError):
                raise DataError(f"{path}: is damaged; remove it together with the files it describes") from None

    def has(self, name: str, source: Mapping[str, Any]) -> bool:
        """Whether the file is there, whole and from this source. Raises DataError if it is there otherwise."""
        path, entry = self.folder / name, self.files.get(name, {"source": {}})
        if not path.exists():
            return False
        if (there := entry["source"]) != source:
            differing = next(key for key in {**there, **source} if there.get(key, ...) != source.get(key, ...))
            raise DataError(f"{path}: {MANIFEST} has another {differing} for it; remove it, or choose another folder")
        if sha256_of(path) != entry["sha256"]:
            raise DataError(f"{path}: is damaged (not the SHA-256 in {MANIFEST}); remove it and run again")
        return True

    @contextmanager
    def draft(self, name: str, source: Mapping[str, Any], **more: Any) -> Iterator[BinaryIO]:
        """A file that appears, with its entry, when the block ends well, and vanishes otherwise."""
        with replacing(self.folder / name) as file:
            yield file
            file.flush()
            path = Path(file.name)
            entry = {"source": dict(source), "sha256": sha256_of(path), "bytes": path.stat().st_size, **more}
            self.files = dict(sorted((self.files | {name: entry}).items()))
            content = orjson.dumps({"files": self.files}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
            write_atomically(self.folder / MANIFEST, content)


@contextmanager
def locked_manifest(folder: Path) -> Iterator[Manifest]:
    """A folder's manifest, for writing. Raises MemAgentError if another run writes there."""
    busy = "another run is writing there; wait for it to end, or choose another folder"
    with folder_lock(folder, busy=busy, name=_LOCK):
        remove_drafts(folder)
        yield Manifest(folder)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
