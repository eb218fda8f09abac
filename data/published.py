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

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..system.errors import MemAgentError
from .pool import Skip, read_questions
from .questions import assemble
from .sources import SourceError, open_file

RAW_NAMES = ("hotpot_dev_distractor_v1.json", "hotpotqa_dev.json")
"""The official name, and the one that MemAgent's code gives the file."""


class PublishedError(MemAgentError):
    """A published file, or the raw file that it speaks of, is absent or another one; says which and the remedy."""


def find_raw(data_root: Path) -> Path:
    """The raw file in ``data_root``. Raises PublishedError."""
    for path in [data_root / name for name in RAW_NAMES]:
        if path.is_file():
            return path
    raise PublishedError(f"its documents are named by number, of HotpotQA's {RAW_NAMES[0]}; put that file into "
                         f"{data_root}")


class RawFile:
    """The documents by their published numbers."""

    def __init__(self, path: Path) -> None:
        """Raises CorpusError: it cannot be read."""
        self.path = path
        self._questions: list[str] = []
        documents: set[str] = set()
        for _, question in read_questions(path):
            self._questions.append("" if isinstance(question, Skip) else question.question)
            if not isinstance(question, Skip):
                documents.update(paragraph.document for paragraph in question.paragraphs)
        self._documents = sorted(documents)

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, number: int) -> str:
        return self._documents[number]

    def context(self, entry: Mapping[str, Any]) -> str:
        """The document of an index-only entry. Raises PublishedError."""
        numbers = entry["context"]
        if not numbers or not all(type(number) is int and 0 <= number < len(self) for number in numbers):
            raise PublishedError(
                f"its `context` is no list of numbers below {len(self)}, the documents of {self.path}; fetch both anew"
            )
        index = entry.get("index")
        if type(index) is not int or not 0 <= index < len(self._questions):
            raise PublishedError(f"its `index` is {index!r}, which is no row of {self.path}; fetch both again")
        if self._questions[index] != entry["input"]:
            raise PublishedError(
                f"{self.path} asks something else in row {index + 1}; put HotpotQA's {RAW_NAMES[0]} there"
            )
        return assemble(self[number] for number in numbers)


def published_ids(published: Path, raw: Path) -> tuple[str, ...]:
    """The ids, in ``raw``, of the questions of a published file, in its order.

    ``published`` is any ``eval_<n>.json`` or the parquet of the development rows.

    Raises:
        PublishedError: it names no rows, or ``raw`` asks other questions there; CorpusError: ``raw`` is of no use.
    """
    rows = [("", "") if isinstance(row, Skip) else (row.id, row.question) for _, row in read_questions(raw)]
    ids = []
    try:
        for row in open_file(published).rows:
            index, asked = _named(published, row.where, row.fields or {})
            row_id, question = rows[index] if 0 <= index < len(rows) else ("", "")
            if question != asked:
                raise PublishedError(
                    f"{published}: {row.where} asks row {index + 1} of HotpotQA's {RAW_NAMES[0]}, which {raw} asks "
                    "otherwise or lacks; give that file as the raw one"
                )
            ids.append(row_id)
    except SourceError as error:
        raise PublishedError(str(error)) from None
    if not ids:
        raise PublishedError(f"{published}: names no questions; give a published eval_<n>.json")
    if len(set(ids)) < len(ids):
        raise PublishedError(f"{published}: names a row twice; fetch it again")
    return tuple(ids)


def _named(path: Path, where: str, fields: Mapping[str, Any]) -> tuple[int, str]:
    extra = fields.get("extra_info")
    source = extra if isinstance(extra, Mapping) else fields
    index, question = source.get("index"), source.get("question", fields.get("input"))
    if type(index) is not int or not isinstance(question, str):
        raise PublishedError(
            f"{path}: {where} has no `index` and `input`; give a published eval_<n>.json or hotpotqa_dev.parquet"
        )
    return index, question
