"""``corpus.jsonl``: the documents that index-only evaluation files refer to, one JSON string a line.

    "Ann\\nAnn is. She was."       <- document 0
    "Bob\\nBob is."                <- document 1

A reader keeps the lines' offsets only (8 bytes a document) and may be shared by threads.
Invariant: line ``i`` is document ``i`` of the pool, and the file has the SHA-256 that the manifest's entry of the
evaluation file names.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from ..system.errors import MemAgentError
from .manifest import MANIFEST, read_manifest, sha256_of
from .questions import assemble

CORPUS = "corpus.jsonl"


class CorpusFileError(MemAgentError):
    """The corpus of an index-only file is absent or another one; says how to get it."""


class CorpusFile:
    """Documents by number."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ends = array("Q", [0])
        with path.open("rb") as lines:
            for line in lines:
                self._ends.append(self._ends[-1] + len(line))
        self._file = path.open("rb", buffering=0)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> str:
        if not 0 <= number < len(self):
            raise CorpusFileError(f"{self.path}: no document {number} among {len(self)}; synthesise it again")
        start, end = self._ends[number], self._ends[number + 1]
        try:
            return str(orjson.loads(os.pread(self._file.fileno(), end - start, start)))
        except ValueError:
            raise CorpusFileError(f"{self.path}: line {number + 1} is no text in JSON; synthesise it again") from None

    def close(self) -> None:
        self._file.close()


def read_context(entry: Mapping[str, Any], corpus: Callable[[], CorpusFile]) -> str:
    """The document of an evaluation entry; ``corpus`` is asked for by an index-only one."""
    if "documents" not in entry:
        return entry["context"]
    documents = corpus()
    return assemble(documents[number] for number in entry["documents"])


def open_corpus(data_root: Path, eval_file: str) -> CorpusFile:
    """The corpus that ``eval_file`` (a name such as ``eval_25600.json``) was made with.

    Raises:
        CorpusFileError: it is not there, or not that one.
    """
    path = data_root / CORPUS
    entry = read_manifest(data_root).files.get(eval_file, {})
    if "corpus" not in entry:
        raise CorpusFileError(
            f"{data_root / eval_file}: {MANIFEST} does not say which {CORPUS} its documents are lines of; copy "
            "all three from the folder where it was made, or synthesise it"
        )
    if not path.is_file():
        raise CorpusFileError(f"{path}: no such file; copy it along with {eval_file}, or synthesise again")
    if sha256_of(path) != entry["corpus"].get("sha256"):
        raise CorpusFileError(f"{path}: is not the corpus {eval_file} was made with; copy both from one place")
    return CorpusFile(path)
