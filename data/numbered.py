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
from .pool import Skip, read_questions
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
        entry = Manifest(data_root).files.get(eval_file, {})
        if "corpus" not in entry:
            raise DataError(
                f"{data_root / eval_file}: {MANIFEST} does not say which {CORPUS} its documents are lines of; copy "
                "all three from the folder where it was made, or synthesise it"
            )
        if not self.path.is_file():
            raise DataError(f"{self.path}: no such file; copy it along with {eval_file}, or synthesise again")
        if sha256_of(self.path) != entry["corpus"].get("sha256"):
            raise DataError(f"{self.path}: is not the corpus {eval_file} was made with; copy both from one place")
        with self.path.open("rb") as lines:
            self._documents: list[str] = [orjson.loads(line) for line in lines]

    def context(self, entry: Mapping[str, Any]) -> str:
        """The document of an entry. Raises DataError."""
        return _assembled(self._documents, entry["documents"], "documents", self.path)


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
        questions = [None if isinstance(row, Skip) else row for _, row in read_questions(path)]
        self.rows = [(question.id, question.question) if question else ("", "") for question in questions]
        """Id and question of each; blank where a row asks none that can be used."""
        self._documents = sorted({paragraph.document for question in questions if question
                                  for paragraph in question.paragraphs})

    def context(self, entry: Mapping[str, Any]) -> str:
        """The document of an entry. Raises DataError."""
        text = _assembled(self._documents, entry["context"], "context", self.path)
        index = entry.get("index")
        if type(index) is not int or not 0 <= index < len(self.rows):
            raise DataError(f"its `index` is {index!r}, which is no row of {self.path}; fetch both again")
        if self.rows[index][1] != entry["input"]:
            raise DataError(f"{self.path} asks something else in row {index + 1}; put HotpotQA's {RAW_NAMES[0]} there")
        return text


def _assembled(documents: list[str], numbers: Any, name: str, path: Path) -> str:
    if not numbers or not all(type(number) is int and 0 <= number < len(documents) for number in numbers):
        raise DataError(f"its `{name}` is no list of numbers below {len(documents)}, the documents of {path}; fetch "
                        "or make both anew")
    return assemble(documents[number] for number in numbers)


def published_ids(published: Path, raw: Path) -> tuple[str, ...]:
    """The ids, in ``raw``, of the questions of a published file, in its order.

    ``published`` is any ``eval_<n>.json`` or the parquet of the development rows. Raises DataError: it names no rows,
    or ``raw`` asks other questions there.
    """
    rows = RawFile(raw).rows
    ids: dict[str, None] = {}
    for row in open_file(published).rows:
        fields = row.fields or {}
        extra = fields.get("extra_info")
        source = extra if isinstance(extra, Mapping) else fields
        index, asked = source.get("index"), source.get("question", fields.get("input"))
        if type(index) is not int or not isinstance(asked, str):
            raise DataError(f"{published}: {row.where} has no `index` and `input`; give a published eval_<n>.json or "
                            "hotpotqa_dev.parquet")
        row_id, question = rows[index] if 0 <= index < len(rows) else ("", "")
        if question != asked:
            raise DataError(f"{published}: {row.where} asks row {index + 1} of HotpotQA's {RAW_NAMES[0]}, which {raw} "
                            "asks otherwise or lacks; give that file as the raw one")
        if row_id in ids:
            raise DataError(f"{published}: names row {index + 1} twice; fetch it again")
        ids[row_id] = None
    if not ids:
        raise DataError(f"{published}: names no questions; give a published eval_<n>.json")
    return tuple(ids)
