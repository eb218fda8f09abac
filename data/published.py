"""MemAgent's published evaluation files: which rows of HotpotQA they ask, and what the numbers in them mean.

Facts from MemAgent's code (taskutils): ``index`` is the number of a row of ``hotpot_dev_distractor_v1.json``, from 0
(memory_data/processing.py, different_docs_eval.py). Above 10,000 documents ``context`` is a list of numbers of
documents, in reading order; document k is the k-th of the sorted set of all paragraphs of that file, each its title,
a newline and its sentences joined as they are (memory_eval/ruler_hqa_over1m.py)::

    {"context": [7, 2], "input": "Who?", "answers": ["Ann"], "num_docs": 2, "index": 0}

Which rows were chosen does not follow from that file: of its first 200, those stayed that two models did not answer
without a document, of which the first 128 (filter.py, filter2.py); the models' replies were sampled without a seed.
Any published file names the 128, so ``published_ids`` reads them from one.

Invariant: an index is believed only where the raw row asks the same question.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..system.errors import MemAgentError
from .corpus_file import MOST_TIMES
from .pool import Skip, read_questions
from .questions import assemble
from .sources import SourceError, open_file

RAW_NAMES = ("hotpot_dev_distractor_v1.json", "hotpotqa_dev.json")
"""The official name, and the one that MemAgent's code gives the file."""


class PublishedError(MemAgentError):
    """A published file, or the raw file that it speaks of, is absent or another one; says which and the remedy."""


def find_raw(data_root: Path, given: Path | None) -> Path:
    """The raw file: ``given``, or the one in ``data_root``. Raises PublishedError."""
    for path in [given] if given else [data_root / name for name in RAW_NAMES]:
        if path.is_file():
            return path
    if given:
        raise PublishedError(f"EVAL_RAW={str(given)!r}: no such file; it is HotpotQA's {RAW_NAMES[0]}")
    raise PublishedError(
        f"its documents are named by number, of HotpotQA's {RAW_NAMES[0]}; put that file into {data_root}, or set "
        "EVAL_RAW to it"
    )


class RawFile:
    """The documents by their published numbers, end to end in one buffer (66,635 of them in 2 s and 85 MB)."""

    def __init__(self, path: Path) -> None:
        """Raises CorpusError: it cannot be read."""
        self.path = path
        self._questions: list[str] = []
        documents: set[bytes] = set()
        for _, question in read_questions(path):
            self._questions.append("" if isinstance(question, Skip) else question.question)
            if not isinstance(question, Skip):
                documents.update(paragraph.document.encode() for paragraph in question.paragraphs)
        self._bytes, self._ends = bytearray(), array("Q", [0])
        for document in sorted(documents):  # UTF-8 sorts as its characters do
            self._bytes += document
            self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> str:
        return self._bytes[self._ends[number] : self._ends[number + 1]].decode()

    def context(self, entry: Mapping[str, Any]) -> str:
        """The document of an index-only entry. Raises PublishedError."""
        numbers = entry["context"]
        if not numbers or not all(type(number) is int and 0 <= number < len(self) for number in numbers):
            raise PublishedError(
                f"its `context` is no list of numbers below {len(self)}, the documents of {self.path}; fetch both anew"
            )
        if sum(self._ends[number + 1] - self._ends[number] for number in numbers) > MOST_TIMES * len(self._bytes):
            raise PublishedError(f"its `context` is {MOST_TIMES} times longer than {self.path}; fetch it again")
        index = entry.get("index")
        if type(index) is not int or not 0 <= index < len(self._questions):
            raise PublishedError(f"its `index` is {index!r}, which is no row of {self.path}; fetch both again")
        if self._questions[index] != entry["input"]:
            raise PublishedError(
                f"{self.path} asks something else in row {index + 1}; set EVAL_RAW to HotpotQA's {RAW_NAMES[0]}"
            )
        return assemble(self[number] for number in numbers)


@dataclass(frozen=True, slots=True)
class _Named:
    where: str
    index: int
    question: str


def published_ids(published: Path, raw: Path) -> tuple[str, ...]:
    """The ids, in ``raw``, of the questions of a published file, in its order.

    ``published`` is any ``eval_<n>.json`` or the parquet of the development rows.

    Raises:
        PublishedError: it names no rows, or ``raw`` asks other questions there; CorpusError: ``raw`` is of no use.
    """
    named = _read_named(published)
    rows = [("", "") if isinstance(row, Skip) else (row.id, row.question) for _, row in read_questions(raw)]
    ids = []
    for each in named:
        row_id, question = rows[each.index] if 0 <= each.index < len(rows) else ("", "")
        if question != each.question:
            raise PublishedError(
                f"{published}: {each.where} asks row {each.index + 1} of HotpotQA's {RAW_NAMES[0]}, which {raw} asks "
                "otherwise or lacks; give that file as the raw one"
            )
        ids.append(row_id)
    if len(set(ids)) < len(ids):
        raise PublishedError(f"{published}: names a row twice; fetch it again")
    return tuple(ids)


def _read_named(path: Path) -> list[_Named]:
    try:
        named = [_named(path, row.where, row.fields or {}) for row in open_file(path).rows]
    except SourceError as error:
        raise PublishedError(str(error)) from None
    if not named:
        raise PublishedError(f"{path}: names no questions; give a published eval_<n>.json")
    return named


def _named(path: Path, where: str, fields: Mapping[str, Any]) -> _Named:
    extra = fields.get("extra_info")
    source = extra if isinstance(extra, Mapping) else fields
    index, question = source.get("index"), source.get("question", fields.get("input"))
    if type(index) is not int or not isinstance(question, str):
        raise PublishedError(
            f"{path}: {where} has no `index` and `input`; give a published eval_<n>.json or hotpotqa_dev.parquet"
        )
    return _Named(where, index, question)
