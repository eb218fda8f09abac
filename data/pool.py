"""Raw files read whole: every question, and the pool of all their paragraphs as documents, each once.

Files are those of ``raw_rows``, as .json, .jsonl or .parquet; several files make one pool.

A worked example, two questions that share a paragraph::

    question a: paragraphs A (gold), B        documents  0 = A, 1 = B, 2 = C
    question b: paragraphs B (gold), C   ->   question a: gold (0,), own (1,)
                                              question b: gold (1,), own (2,)

Invariants:
- documents are numbered in the order in which they are first met; equal texts have one number;
- a question's ``gold`` and ``own`` documents are disjoint; ``own`` are distractors chosen for it by its data set
  (SQuAD: the other paragraphs of its article);
- ids are unique. Whatever is wrong with a file ends the reading with one line; sound rows of no use are counted.

Texts lie end to end in one buffer per column, not in a Python object each: worker processes share it by fork, and
reading never copies pages through reference counts. Memory is about 1.2 KB per document and 1 KB per question.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ..rewards.qa_metrics import normalise_squad
from ..system.errors import MemAgentError
from .raw_rows import RawQuestion, Skip, read_row, squad_rows
from .row_schemas import BadRow
from .sources import SourceError, open_file

_SQUAD_FILE = re.compile(rb'\s*\{\s*("version"\s*:\s*"[^"]*"\s*,\s*)?"data"\s*:')


class CorpusError(MemAgentError):
    """Raw files that cannot be used; names the file and the row."""


class Column:
    """Texts by number, end to end in one buffer."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("Q", [0])

    def append(self, text: str) -> None:
        self._bytes += text.encode()
        self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> str:
        return self._bytes[self._ends[number] : self._ends[number + 1]].decode()

    def holds(self, number: int, needle: bytes) -> bool:
        return self._bytes.find(needle, self._ends[number], self._ends[number + 1]) >= 0


class Pool:
    """Unique documents, with their words in SQuAD form between blanks, for the search of answers."""

    def __init__(self) -> None:
        self.texts = Column()
        self.words = Column()
        self._numbers: dict[bytes, int] = {}

    def add(self, text: str) -> int:
        """The number of this text, new or known."""
        number = self._numbers.setdefault(hashlib.sha256(text.encode()).digest()[:16], len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
            self.words.append(f" {normalise_squad(text)} ")
        return number

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, slots=True)
class PoolQuestion:
    """A question whose paragraphs are numbers of documents."""

    id: str
    question: str
    answers: tuple[str, ...]
    gold: tuple[int, ...]
    own: tuple[int, ...]
    supporting: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Corpora:
    pool: Pool
    questions: tuple[PoolQuestion, ...]
    skipped: Counter[Skip]
    """Sound rows that are no questions, by reason."""


def load_corpora(paths: Sequence[Path]) -> Corpora:
    """Read raw files.

    Raises:
        CorpusError: a file is missing, damaged or of no known kind, a row is broken, an id is repeated, or there is
            no question at all.
    """
    pool, skipped = Pool(), Counter[Skip]()
    questions: list[tuple[RawQuestion, tuple[int, ...]]] = []
    seen: dict[str, str] = {}
    articles: dict[str, dict[int, None]] = {}
    for path in paths:
        for where, raw in _read(path):
            if isinstance(raw, Skip):
                skipped[raw] += 1
                continue
            if raw.id in seen:
                raise CorpusError(f"{path}: {where}: id {raw.id} is at {seen[raw.id]} already; remove one of the two")
            seen[raw.id] = f"{path.name} {where}"
            documents = tuple(pool.add(paragraph.document) for paragraph in raw.paragraphs)
            if raw.article:
                articles.setdefault(raw.article, {}).update(dict.fromkeys(documents))
            questions.append((raw, documents))
    if not questions:
        raise CorpusError(f"{', '.join(map(str, paths))}: no question that can be used among {skipped.total()} rows")
    neighbours = {title: tuple(documents) for title, documents in articles.items()}
    found = tuple(_pool_question(raw, documents, neighbours.get(raw.article, ())) for raw, documents in questions)
    return Corpora(pool, found, skipped)


def _pool_question(raw: RawQuestion, documents: tuple[int, ...], article: tuple[int, ...]) -> PoolQuestion:
    marked = zip(documents, raw.paragraphs, strict=True)
    gold = tuple(dict.fromkeys(number for number, paragraph in marked if paragraph.gold))
    assert gold, f"question {raw.id} has no gold document"
    own = tuple(number for number in dict.fromkeys(documents + article) if number not in gold)
    return PoolQuestion(raw.id, raw.question, raw.answers, gold, own, raw.supporting)


def _read(path: Path) -> Iterator[tuple[str, RawQuestion | Skip]]:
    try:
        for where, fields in _rows(path):
            try:
                yield where, read_row(fields)
            except BadRow as error:
                raise CorpusError(f"{path}: {where}: {error}") from None
    except SourceError as error:
        raise CorpusError(str(error)) from None


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if path.is_file() and _is_squad(path):
        yield from _squad_file(path)
        return
    for row in open_file(path).rows:
        if row.fields is None:
            raise CorpusError(f"{path}: {row.where}: {row.problem}; fetch the file again")
        yield row.where, row.fields


def _is_squad(path: Path) -> bool:
    with path.open("rb") as file:
        return _SQUAD_FILE.match(file.read(4096).removeprefix(b"\xef\xbb\xbf")) is not None


def _squad_file(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        yield from squad_rows(orjson.loads(path.read_bytes())["data"])
    except orjson.JSONDecodeError as error:
        raise CorpusError(f"{path}: not valid JSON ({error}); fetch the file again") from None
    except BadRow as error:
        raise CorpusError(f"{path}: {error}") from None
