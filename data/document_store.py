"""Long documents by id, beside the training data that names them.

A training row with its document inline is copied for every trajectory and dumped with every rollout. Rows with long
documents therefore carry ``metadata.context_id`` only, and readers look the text up here::

    train.jsonl
    train.jsonl.docs/
        documents.bin   the documents' UTF-8 bytes, end to end, only ever appended to
        index.jsonl     {"id": "9f86d081884c7d65", "offset": 0, "bytes": 4} per document

Plain files and not SQLite: many processes on many nodes read one store, often over a network file system, where
SQLite's locks are slow or absent.

Invariants:
- id = first 16 hex digits of the SHA-256 of the bytes. Equal texts are stored once, and a reader checks what it read.
- ``index.jsonl`` is replaced by one rename, after ``documents.bin`` is on disk. Bytes that no entry names are
  leftovers of an interrupted writer.
- Documents are never removed, so training rows written earlier stay valid; delete the folder to start afresh.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import ExitStack
from functools import cached_property
from io import FileIO
from pathlib import Path

import orjson

from ..system.errors import MemAgentError
from ..system.files import append_whole, folder_lock, remove, replacing
from .shards import is_sharded, shard_folder

DATA_NAME, INDEX_NAME = "documents.bin", "index.jsonl"
SHARED_STORE = "parquet.docs"
_SLICE = re.compile(r"@\[(-?[0-9]+)?:(-?[0-9]+)?\]$")  # hosts accept train.jsonl@[0:100] as training data


class MissingDocument(MemAgentError, LookupError):
    """The store or the document is absent or damaged; the message says which, where, and what to do."""


def store_folder(train_data: str | Path) -> Path:
    """The store that belongs to a training file: ``a/train.jsonl`` -> ``a/train.jsonl.docs``.

    Parquet files of a folder are shards, which share one: ``a/train_3.parquet``, ``a/train_*.parquet`` or the folder
    ``a`` -> ``a/parquet.docs``.
    """
    path = without_slice(train_data)
    if path.suffix == ".parquet" or is_sharded(path):
        return shard_folder(path) / SHARED_STORE
    return Path(f"{path}.docs")


def without_slice(train_data: str | Path) -> Path:
    """The file itself of ``a/train.jsonl@[0:100]``."""
    return Path(_SLICE.sub("", str(train_data)))


def row_slice(train_data: str | Path) -> slice:
    """The rows that ``a/train.jsonl@[0:100]`` means; all of them without a slice."""
    found = _SLICE.search(str(train_data))
    return slice(*(int(bound) if bound else None for bound in found.groups())) if found else slice(None)


def is_store(path: Path) -> bool:
    """Whether the files of a store are there."""
    return (path / DATA_NAME).is_file() and (path / INDEX_NAME).is_file()


def document_id(text: str) -> str:
    return _id_of(text.encode())


def _id_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


Index = dict[str, tuple[int, int]]
"""Offset and bytes by id."""


def _load_index(folder: Path) -> Index:
    try:
        with (folder / INDEX_NAME).open("rb") as lines:
            return {entry["id"]: (entry["offset"], entry["bytes"]) for entry in map(orjson.loads, lines)}
    except FileNotFoundError:
        raise MissingDocument(
            f"{folder}: no document store; copy the .docs folder along with the training data"
        ) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise MissingDocument(f"{folder / INDEX_NAME}: is damaged ({error}); copy the folder again, or delete it and "
                              "rerun prepare_data") from None


class DocumentStore:
    """Reads documents by id. Opens on first use; may be shared by threads and pickled."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @cached_property
    def _index(self) -> Index:
        return _load_index(self.path)

    def get(self, context_id: str) -> str:
        """The document's text. Raises MissingDocument when store or document are absent or damaged."""
        if context_id not in self._index:
            raise MissingDocument(
                f"{self.path}: no document {context_id!r} among {len(self)}; "
                "use the .docs folder written together with this training data"
            )
        offset, size = self._index[context_id]
        try:
            with (self.path / DATA_NAME).open("rb") as file:
                file.seek(offset)
                content = file.read(size)
        except OSError as error:
            raise MissingDocument(f"{error}; copy the .docs folder along with the training data") from None
        if _id_of(content) != context_id:
            raise MissingDocument(f"{self.path}: the bytes of document {context_id!r} are damaged; copy the folder "
                                  "again, or rerun prepare_data")
        return content.decode()

    def __contains__(self, context_id: str) -> bool:
        return context_id in self._index

    def __len__(self) -> int:
        return len(self._index)


class DocumentWriter:
    """Adds documents to a store, which is created on the first ``add``; nothing counts until ``commit``.

    with DocumentWriter(store_folder("train.jsonl")) as documents:
        context_id = documents.add(text)
        documents.commit()

    Raises MemAgentError when another process writes the store, OSError when the folder cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: FileIO | None = None
        self._index: Index = {}
        self._committed_end = self._end = 0
        self._pending = False
        self._held = ExitStack()

    def add(self, text: str) -> str:
        """Store a text, unless it is there already, and return its id."""
        if self._file is None:
            self._file = self._open()
        content = text.encode()
        context_id = _id_of(content)
        if context_id not in self._index:
            append_whole(self._file, content)
            self._index[context_id] = self._end, len(content)
            self._end += len(content)
            self._pending = True
        return context_id

    def commit(self) -> None:
        """Make everything added visible to readers that open the store from now on."""
        if self._file is None or not self._pending:
            return
        os.fsync(self._file.fileno())
        with replacing(self.path / INDEX_NAME) as out:
            out.writelines(orjson.dumps({"id": context_id, "offset": offset, "bytes": size}) + b"\n"
                           for context_id, (offset, size) in self._index.items())
        self._committed_end, self._pending = self._end, False

    def _open(self) -> FileIO:
        busy = "another process is writing this store; wait for it to end"
        self._held.enter_context(folder_lock(self.path, busy=busy))
        file = self._held.enter_context((self.path / DATA_NAME).open("ab", buffering=0))
        self._index = _load_index(self.path) if (self.path / INDEX_NAME).exists() else {}
        self._end = self._committed_end = os.fstat(file.fileno()).st_size
        return file

    def __enter__(self) -> DocumentWriter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None and self._pending:
            self._file.truncate(self._committed_end)
            if not (self.path / INDEX_NAME).exists():
                remove(self.path)
        self._held.close()
        self._file = None
