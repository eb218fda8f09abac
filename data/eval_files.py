"""A folder of evaluation files: their names, what each was made from, and documents by number.

``manifest.json`` says what each file was made from::

    {"files": {"eval_50.json": {"source": {"kind": "synthesis", "seed": 42, ...}, "sha256": "9f86...", "bytes": 4}}}

- a file stands under its name only when it is whole, and then the manifest has its SHA-256: the entry is written
  before the rename, so an interrupted run leaves at most an entry without a file, which counts as missing;
- a file that is there is used only if it has that SHA-256 and comes from the very same source; it is never
  overwritten: the user removes it, or names another folder;
- manifests hold no times and no paths: equal work gives an equal manifest.

Files of more than 10,000 documents name them by number. Synthesised ones name lines of ``corpus.jsonl`` beside them,
one JSON string a line; the manifest says which corpus it is::

    {"documents": [7, 2], "input": "Who?", "answers": ["Ann"], "num_docs": 2, "index": 0}

MemAgent's published files name HotpotQA's paragraphs. Facts from MemAgent's code (taskutils): ``index`` is the number
of a row of ``hotpot_dev_distractor_v1.json``, from 0 (memory_data/processing.py, different_docs_eval.py). ``context``
is a list of numbers, in reading order; document k is the k-th of the sorted set of all paragraphs of that file, each
its title, a newline and its sentences joined as they are (memory_eval/ruler_hqa_over1m.py)::

    {"context": [7, 2], "input": "Who?", "answers": ["Ann"], "num_docs": 2, "index": 0}

Which rows were chosen does not follow from that file: of its first 200, those stayed that two models did not answer
without a document, of which the first 128 (filter.py, filter2.py); the models' replies were sampled without a seed.
Any published file names the 128, so ``published_ids`` reads them from one. An index is believed only where the raw
row asks the same question.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from ..system.files import folder_lock, replacing, write_atomically
from .questions import assemble, read_questions
from .rows import DataError, open_file

LENGTHS = (50, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600)
"""The numbers of documents of the published results."""
INDEX_ONLY_ABOVE = 10_000
"""Longer documents are given by numbers, in the published files as well."""
MANIFEST, CORPUS = "manifest.json", "corpus.jsonl"
RAW_NAMES = ("hotpot_dev_distractor_v1.json", "hotpotqa_dev.json")
"""The official name, and the one that MemAgent's code gives the file."""


def eval_name(length: int | str) -> str:
    return f"eval_{length}.json"


def parse_lengths(text: str) -> tuple[int, ...]:
    """``50 200`` -> (50, 200). Raises DataError."""
    words = text.split()
    if not words or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise DataError(f"lengths {text!r}: allowed: numbers above 0, such as 50 200")
    return tuple(dict.fromkeys(map(int, words)))


# --- what was made from what -----------------------------------------------------------------------------------------
class Manifest:
    """The manifest of a folder, for reading; ``locked_manifest`` gives one for writing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / MANIFEST
        self.files: dict[str, Any] = orjson.loads(path.read_bytes())["files"] if path.exists() else {}

    def has(self, name: str, source: Mapping[str, Any]) -> bool:
        """Whether the file is there, whole and from this source. Raises DataError if it is there otherwise."""
        path, entry = self.folder / name, self.files.get(name, {"source": {}, "sha256": ""})
        if not path.exists():
            return False
        there = entry["source"]
        differing = [key for key in {**there, **source} if there.get(key, ...) != source.get(key, ...)]
        if differing or sha256_of(path) != entry["sha256"]:
            why = f"was made with another {differing[0]}" if differing else "is damaged"
            raise DataError(f"{path}: {why}, by {MANIFEST}; remove it, or choose another folder")
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
    with folder_lock(folder, busy=busy, name=".manifest.lock"):
        yield Manifest(folder)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- documents by number ---------------------------------------------------------------------------------------------
class Corpus:
    """The corpus that ``eval_file`` (a name such as ``eval_25600.json``) was made with."""

    def __init__(self, data_root: Path, eval_file: str) -> None:
        """Raises DataError: it is not there, or not that one."""
        self.path = data_root / CORPUS
        made_with = Manifest(data_root).files.get(eval_file, {}).get("corpus", {}).get("sha256")
        if not self.path.is_file() or sha256_of(self.path) != made_with:
            raise DataError(f"{self.path}: is not there, or by {MANIFEST} not the corpus of {eval_file}; copy all "
                            "three from where they were made, or synthesise again")
        self._documents = list(map(orjson.loads, self.path.read_bytes().splitlines()))

    def context(self, entry: Mapping[str, Any]) -> str:
        """The document of an entry. Raises DataError."""
        return _assembled(self._documents, entry, "documents", self.path)


def find_raw(data_root: Path) -> Path:
    """HotpotQA's raw file in ``data_root``. Raises DataError."""
    for path in [data_root / name for name in RAW_NAMES]:
        if path.is_file():
            return path
    raise DataError(f"its documents are named by number, of HotpotQA's {RAW_NAMES[0]}; put that file into {data_root}")


class RawFile:
    """HotpotQA's raw file, with its documents by their published numbers."""

    def __init__(self, path: Path) -> None:
        """Raises DataError: it cannot be read."""
        self.path = path
        self._questions = list(read_questions(path))
        self._documents = sorted({paragraph.document for question in filter(None, self._questions)
                                  for paragraph in question.paragraphs})

    def context(self, entry: Mapping[str, Any]) -> str:
        """The document of an entry. Raises DataError."""
        self.id_of(entry.get("index"), entry["input"])
        return _assembled(self._documents, entry, "context", self.path)

    def id_of(self, index: Any, asked: Any) -> str:
        """The id of row ``index``, which asks the question ``asked``. Raises DataError."""
        question = self._questions[index] if type(index) is int and 0 <= index < len(self._questions) else None
        if question is None or question.question != asked:
            raise DataError(f"its `index` {index!r} is no row of HotpotQA's {RAW_NAMES[0]}, or {self.path} asks "
                            "otherwise there; use the official file")
        return question.id


def _assembled(documents: list[str], entry: Mapping[str, Any], name: str, path: Path) -> str:
    try:
        return assemble(documents[number] for number in entry[name])
    except (IndexError, TypeError):
        raise DataError(f"its `{name}` is no list of numbers below {len(documents)}, the documents of {path}; fetch "
                        "or make both anew") from None


def published_ids(published: Path, raw: Path) -> tuple[str, ...]:
    """The ids, in ``raw``, of the questions of a published file, in its order.

    ``published`` is any ``eval_<n>.json`` or the parquet of the development rows. Raises DataError: it names no rows,
    or ``raw`` asks other questions there.
    """
    rows, ids = RawFile(raw), dict[str, None]()
    for row in open_file(published):
        source = row.fields.get("extra_info") or row.fields
        try:
            ids[rows.id_of(source.get("index"), source.get("question", source.get("input")))] = None
        except DataError as error:
            raise DataError(f"{published}: {row.where}: {error}") from None
    return tuple(ids)
