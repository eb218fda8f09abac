"""Long documents by id, beside the training data that names them.

A training row with its document inline is copied for every trajectory and dumped with every rollout. Rows with long
documents therefore carry ``metadata.context_id`` only, and readers look the text up here::

    train.jsonl
    train.jsonl.docs/
        documents.bin   the documents' UTF-8 bytes, end to end, only ever appended to
        index.jsonl     {"id": "9f86d081884c7d65", "offset": 0, "bytes": 4} per document

Why plain files and not SQLite: many processes on many nodes read one store, often over a network file system, where
SQLite's locks are slow or absent. Here a reader takes no lock at all: it loads the index once (about 60 bytes a
document) and reads byte ranges with ``pread``.

Invariants:
- id = first 16 hex digits of the SHA-256 of the bytes. Equal texts are stored once, and a reader checks what it read.
- ``index.jsonl`` is replaced by one rename, after ``documents.bin`` is on disk. Bytes past the last indexed document
  are leftovers of an interrupted writer; readers never see them and the next writer cuts them off.
- Documents are never removed, so training rows written earlier stay valid; delete the folder to start afresh.
- One writer at a time, enforced with a lock where the file system has locks.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path
from typing import Any, NoReturn

import orjson

from ..system.atomic_file import appending, replacing
from ..system.bounded_json import loads
from ..system.errors import MemAgentError
from ..system.file_lock import locked
from .shards import is_sharded, shard_folder

DATA_NAME, INDEX_NAME = "documents.bin", "index.jsonl"
SHARED_STORE = "parquet.docs"
_SLICE = re.compile(r"@\[(-?[0-9]{1,18})?:(-?[0-9]{1,18})?\]$")  # hosts accept train.jsonl@[0:100] as training data


class MissingDocument(MemAgentError, LookupError):
    """The store or the document is absent or damaged; the message says which, where, and what to do."""


class StoreError(MemAgentError):
    """A store cannot be written: another writer is at work, or the files there do not fit together."""


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


@dataclass(frozen=True, slots=True)
class _Entry:
    id: str
    offset: int
    bytes: int


def _load_index(path: Path) -> dict[str, _Entry]:
    with path.open("rb") as lines:
        entries = [_Entry(**loads(line)) for line in lines]
    for entry in entries:
        places = (entry.offset, entry.bytes)
        if type(entry.id) is not str or not all(type(place) is int and 0 <= place < 2**62 for place in places):
            raise ValueError("an entry is not id, offset and bytes")
    return {entry.id: entry for entry in entries}


def _end_of(index: dict[str, _Entry]) -> int:
    return max((entry.offset + entry.bytes for entry in index.values()), default=0)


class DocumentStore:
    """Reads documents by id. Opens on first use, may be shared by threads, and pickles as its path alone."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._reset()

    def _reset(self) -> None:
        self._index: dict[str, _Entry] | None = None
        self._fd = -1
        self._opening = threading.Lock()

    def get(self, context_id: str) -> str:
        """The document's text. Raises MissingDocument when store or document are absent or damaged."""
        index = self._loaded()
        entry = index.get(context_id)
        if entry is None:
            raise MissingDocument(
                f"{self.path}: no document {context_id!r} among {len(index)}; "
                "use the .docs folder written together with this training data"
            )
        content = self._read(entry)
        if _id_of(content) != context_id:
            self._fail(f"the bytes of document {context_id!r} are damaged")
        try:
            return content.decode()
        except UnicodeDecodeError:
            self._fail(f"document {context_id!r} is not UTF-8")

    def __contains__(self, context_id: str) -> bool:
        return context_id in self._loaded()

    def __len__(self) -> int:
        return len(self._loaded())

    def close(self) -> None:
        """Give the file handle back; the next ``get`` opens the store again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._reset()

    def _loaded(self) -> dict[str, _Entry]:
        if self._index is None:
            self._open()
        assert self._index is not None
        return self._index

    def _open(self) -> None:
        with self._opening:
            if self._index is not None:
                return
            try:
                index = _load_index(self.path / INDEX_NAME)
                self._fd = os.open(self.path / DATA_NAME, os.O_RDONLY | os.O_CLOEXEC)
                if _end_of(index) > os.fstat(self._fd).st_size:
                    self._fail(f"{DATA_NAME} is damaged (shorter than indexed)")
            except FileNotFoundError as error:
                raise MissingDocument(
                    f"{self.path}: no document store ({Path(error.filename).name} is absent); copy the .docs folder "
                    "along with the training data, or set MEM_DOC_STORE"
                ) from None
            except (OSError, ValueError, TypeError) as error:
                self._fail(f"cannot be read ({error})")
            self._index = index  # last: other threads test it without the lock

    def _read(self, entry: _Entry) -> bytes:
        parts, done = [], 0
        while done < entry.bytes:  # one pread returns at most 2 GiB, and less on some network file systems
            part = os.pread(self._fd, entry.bytes - done, entry.offset + done)
            if not part:
                break
            parts.append(part)
            done += len(part)
        return b"".join(parts)

    def _fail(self, what: str) -> NoReturn:
        raise MissingDocument(f"{self.path}: {what}; copy the folder again, or rerun prepare_data") from None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.path = state["path"]
        self._reset()

    def __repr__(self) -> str:
        return f"DocumentStore({str(self.path)!r})"


class DocumentWriter:
    """Adds documents to a store, which is created on the first ``add``; nothing counts until ``commit``.

    with DocumentWriter(store_folder("train.jsonl")) as documents:
        context_id = documents.add(text)
        documents.commit()

    Leaving the block without a commit puts the store back as it was. Raises StoreError when another writer holds the
    store or its files do not fit together, OSError when the folder cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: FileIO | None = None
        self._entries: dict[str, _Entry] = {}
        self._committed_end = self._end = 0
        self._pending = self._created_folder = False

    def add(self, text: str) -> str:
        """Store a text, unless it is there already, and return its id."""
        if self._file is None:
            self._file = self._open()
        content = text.encode()
        entry = _Entry(_id_of(content), self._end, len(content))
        known = self._entries.setdefault(entry.id, entry)
        if known is entry:
            self._pending = True
            self._write(content)
        assert known.bytes == entry.bytes, f"two documents share the id {entry.id}"
        return entry.id

    def commit(self) -> None:
        """Make everything added visible to readers that open the store from now on."""
        if self._file is None or not self._pending:
            return
        os.fsync(self._file.fileno())
        with replacing(self.path / INDEX_NAME) as out:
            out.writelines(orjson.dumps(asdict(entry)) + b"\n" for entry in self._entries.values())
        self._committed_end, self._pending, self._created_folder = self._end, False, False

    def close(self) -> None:
        """Drop what was not committed and release the store."""
        if self._file is None:
            return
        if self._pending:
            self._file.truncate(self._committed_end)
        if self._created_folder:
            (self.path / DATA_NAME).unlink()
        self._file.close()
        self._file = None
        if self._created_folder:
            with suppress(OSError):  # another writer has put something there
                self.path.rmdir()

    def _write(self, content: bytes) -> None:
        assert self._file is not None
        rest = memoryview(content)
        while rest:  # unbuffered: a full disk fails here, not at close, and a single write may be short
            written = self._file.write(rest)
            self._end += written
            rest = rest[written:]

    def _open(self) -> FileIO:
        # Without locks the reader's check of every document still catches a mixed-up store.
        busy = StoreError(f"{self.path}: another prepare_data is writing this store; wait for it to end")
        file = locked(self.path / DATA_NAME, self._opened, busy)
        try:
            index = self.path / INDEX_NAME
            self._created_folder = self._created_folder and not index.exists()  # else another has filled it since
            self._entries = _load_index(index) if index.exists() else {}
            self._end = self._committed_end = _end_of(self._entries)
            if os.fstat(file.fileno()).st_size < self._committed_end:
                raise StoreError(f"{self.path}: {DATA_NAME} is shorter than indexed; delete the folder and retry")
            file.truncate(self._committed_end)
        except (ValueError, TypeError) as error:
            file.close()
            raise StoreError(f"{self.path}: {INDEX_NAME} is damaged ({error}); delete the folder and retry") from None
        except BaseException:
            file.close()
            raise
        return file

    def _opened(self, data: Path) -> FileIO:
        self._created_folder = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        return appending(data)

    def __enter__(self) -> DocumentWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
