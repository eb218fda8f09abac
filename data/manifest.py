"""A folder of data files with a ``manifest.json`` that says what each was made from.

::

    {"files": {"eval_50.json": {"source": {"kind": "synthesis", "seed": 42, ...}, "sha256": "9f86...", "bytes": 4}}}

Invariants:
- a file stands under its name only when it is whole, and then the manifest has its SHA-256: the entry is written
  before the rename, so an interrupted run leaves at most an entry without a file, which counts as missing;
- a file that is there is used only if it has that SHA-256 and comes from the very same source; it is never
  overwritten: the user removes it, or names another folder;
- one process at a time writes a folder, where the file system has locks;
- manifests hold no times and no paths: equal work gives an equal manifest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from ..system.atomic_file import remove_drafts, replacing, write_atomically
from ..system.bounded_json import loads
from ..system.errors import MemAgentError
from ..system.file_lock import lock_dir
from ..system.printable import one_line

MANIFEST, _LOCK = "manifest.json", ".manifest.lock"
_LONGEST = 80
"""Of a name that is told."""


class ManifestError(MemAgentError):
    """A folder or file in it cannot be used or written; names it and the remedy."""


class Draft:
    """A file being written, hashed on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.bytes = 0

    def write(self, content: bytes) -> None:
        self._file.write(content)
        self.digest.update(content)
        self.bytes += len(content)


class Manifest:
    """The manifest of a folder; make it with ``locked_manifest``, or read one with ``read_manifest``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = _read(folder / MANIFEST)

    def has(self, name: str, source: Mapping[str, Any]) -> bool:
        """Whether the file is there, whole and from this source. Raises ManifestError if it is there otherwise."""
        path, entry = self.folder / name, self.files.get(name)
        if not path.exists():
            return False
        if entry is None:
            raise ManifestError(f"{path}: is there, but {MANIFEST} does not say from where; remove or move it")
        if entry["source"] != source:
            there = entry["source"]
            differing = next(key for key in {**there, **source} if _of(there, key) != _of(source, key))
            told = f"was made with another {one_line(differing, _LONGEST)}; remove it, or choose another folder"
            raise ManifestError(f"{path}: {told}")
        if path.stat().st_size != entry["bytes"] or sha256_of(path) != entry["sha256"]:
            raise ManifestError(f"{path}: is damaged (not the SHA-256 in {MANIFEST}); remove it and run again")
        return True

    @contextmanager
    def draft(self, name: str, source: Mapping[str, Any], **more: Any) -> Iterator[Draft]:
        """A file that appears, with its entry, when the block ends well, and vanishes otherwise."""
        with replacing(self.folder / name) as file:
            draft = Draft(file)
            yield draft
            entry = {"source": dict(source), "sha256": draft.digest.hexdigest(), "bytes": draft.bytes}
            self._enter(name, entry | more)

    def move_in(self, path: Path, name: str, source: Mapping[str, Any], sha256: str) -> None:
        """Move a finished file here under its name, and enter it."""
        self._enter(name, {"source": dict(source), "sha256": sha256, "bytes": path.stat().st_size})
        path.replace(self.folder / name)

    def _enter(self, name: str, entry: dict[str, Any]) -> None:
        self.files = dict(sorted((self.files | {name: entry}).items()))
        content = orjson.dumps({"files": self.files}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        write_atomically(self.folder / MANIFEST, content)


@contextmanager
def locked_manifest(folder: Path) -> Iterator[Manifest]:
    """A folder's manifest, for writing. Raises ManifestError if the folder cannot be written, or somebody does."""
    # Where there are no locks nothing is lost: two runs of the same work write the same bytes.
    busy = "another run is writing there; wait for it to end"
    with lock_dir(folder, _LOCK, ManifestError, busy=busy, other="choose another folder"):
        remove_drafts(folder)
        yield Manifest(folder)


def read_manifest(folder: Path) -> Manifest:
    """For reading alone. Raises ManifestError if it is damaged."""
    return Manifest(folder)


def _read(path: Path) -> dict[str, Any]:
    try:
        files = dict(loads(path.read_bytes())["files"])
        if not all(map(_is_entry, files.values())):
            raise ValueError
        return files
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError):
        raise ManifestError(f"{path}: is damaged; remove it together with the files it describes") from None


def _of(source: Mapping[str, Any], key: str) -> tuple[Any, ...]:
    """Its value; a null is one as well."""
    return (source[key],) if key in source else ()


def _is_entry(entry: Any) -> bool:
    kinds = {"source": dict, "sha256": str, "bytes": int}
    if not isinstance(entry, dict) or not isinstance(entry.get("corpus", {}), dict):
        return False
    return all(type(entry.get(name)) is kind for name, kind in kinds.items())


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
