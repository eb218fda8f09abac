"""Documents by number: what evaluation files of more than 10,000 documents name in place of their text.

Synthesised files name lines of ``corpus.jsonl`` beside them, one JSON string a line; ``manifest.json`` says which
corpus it is::

    {"documents": [7, 2], "input": "Who?", "answers": ["Ann"], "num_docs": 2, "index": 0}

MemAgent's published files name HotpotQA's paragraphs. Facts from MemAgent's code (taskutils): ``index`` is the number
of a row of ``hotpot_dev_distractor_v1.json``, from 0 (memory_data/processing.py, different_docs_eval.py). ``context``
is a list of numbers, in reading order; document k is the k-th of the sorted set of all paragraphs of that file, each
its title, a newline and its sentences joined as they are (memory_eval/ruler_hqa_over1m.py)::

    {"context": [7, 2], "input": "Who?", "answers": ["Ann"], "num_docs": 2, "index": 0}

Which rows were chosen does not follow from that file: of its first 200, those stayed that two models did not answer
without a document, of which the first 128 (filter.py, filter2.py); the models' replies were sampled without a seed.
Any published file names the 128, so ``published_ids`` reads them from one.

Invariant: an index is believed only where the raw row asks the same question.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from .manifest import MANIFEST, Manifest, sha256_of
from .pool import read_questions
from .questions import assemble
from .rows import DataError, open_file

CORPUS = "corpus.jsonl"
RAW_NAMES = ("hotpot_dev_distractor_v1.json", "hotpotqa_dev.json")
"""The official name, and the one that MemAgent's code gives the file."""


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
    rows, ids = RawFile(raw), list[str]()
    for row in open_file(published):
        source = row.fields.get("extra_info") or row.fields
        try:
            ids.append(rows.id_of(source.get("index"), source.get("question", source.get("input"))))
        except DataError as error:
            raise DataError(f"{published}: {row.where}: {error}") from None
    if not ids or len(set(ids)) < len(ids):
        raise DataError(f"{published}: names no questions, or one twice; give a published eval_<n>.json")
    return tuple(ids)
