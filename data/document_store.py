"""Long documents by id, beside the training data that names them.

A training row with its document inline is copied for every trajectory and dumped with every rollout. Rows with long
documents therefore carry ``metadata.context_id`` only, and readers look the text up here::

    train.jsonl
    train.jsonl.docs/9f/9f86d081884c7d65.txt      the document's UTF-8 bytes

The id is the first 16 hex digits of the SHA-256 of the bytes: equal texts are one file, and a reader checks what it
read. A document appears whole by one rename, so any number of processes may write and read one store.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from ..system.errors import MemAgentError
from ..system.files import naming
from .training_file import is_sharded, shard_folder, without_slice

SHARED_STORE = "parquet.docs"


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


def document_id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class DocumentStore:
    """Reads and adds documents by id; may be shared by threads and pickled."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def get(self, context_id: str) -> str:
        """The document's text. Raises MissingDocument."""
        with suppress(OSError, UnicodeDecodeError):
            text = self._file(context_id).read_bytes().decode()
            if document_id(text) == context_id:
                return text
        raise MissingDocument(f"{self._file(context_id)}: is missing or damaged; copy the .docs folder that was "
                              "written together with this training data, or run prepare_data again")

    def __contains__(self, context_id: str) -> bool:
        return self._file(context_id).is_file()

    def _file(self, context_id: str) -> Path:
        return self.path / context_id[:2] / f"{context_id}.txt"

    def add(self, text: str) -> str:
        """Store a text, unless it is there already, and return its id; the first one makes the store.

        Raises OSError. What a failed run has added stays, and is found by the next one.
        """
        context_id = document_id(text)
        file = self._file(context_id)
        if context_id not in self:
            draft = file.with_suffix(f".{os.getpid()}.tmp")
            with naming(file):
                file.parent.mkdir(parents=True, exist_ok=True)
                draft.write_bytes(text.encode())
                draft.replace(file)
        return context_id
