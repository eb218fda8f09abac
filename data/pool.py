"""Raw files read whole: every question, and the pool of all their paragraphs as documents, each once.

Files hold rows that ``questions`` knows, as .json, .jsonl, .csv or .parquet, or are original SQuAD files; several
files make one pool.

A worked example, two questions that share a paragraph::

    question a: paragraphs A (gold), B        documents  0 = A, 1 = B, 2 = C
    question b: paragraphs B (gold), C   ->   question a: gold (0,), own (1,)
                                              question b: gold (1,), own (2,)

Invariants:
- documents are numbered in the order in which they are first met; equal texts have one number;
- a question's ``gold`` and ``own`` documents are disjoint, and it has a gold one; ``own`` are distractors chosen for
  it by its data set (SQuAD: the other paragraphs of its article);
- ids are unique. A broken row ends the reading with one line; sound rows of no use are counted.

Texts lie end to end in one buffer per column, not in a Python object each: worker processes share it by fork, and
reading never copies pages through reference counts. Memory is about 1.2 KB per document and 1 KB per question.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from ..rewards.qa_metrics import normalise_squad
from ..system.errors import MemAgentError
from .paragraphs import spaced_documents
from .questions import DOCUMENT_COLUMNS, BadRow, Impossible, Question, fact_titles, read_question, without_wrapping
from .sources import SourceError, open_file


class CorpusError(MemAgentError):
    """Raw files that cannot be used; names the file and the row."""


class Skip(StrEnum):
    """Why a sound row is of no use."""

    IMPOSSIBLE = "marked as impossible to answer"
    GOLD_ABSENT = "with a supporting document that is not among its paragraphs"


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
    near: tuple[int, ...]
    """The other paragraphs of its row."""
    supporting: tuple[str, ...]
    row: tuple[int, ...] = ()
    """``gold`` and ``near`` in the order of the data."""
    evidence: tuple[int, ...] = ()
    """The document of every supporting fact, in the order in which the data names the facts, with repetitions; none
    where a fact is in no gold document, as its row marks paragraphs that are no evidence of it."""
    article: tuple[int, ...] = ()
    """All paragraphs of its article: one tuple for all questions of it."""

    @property
    def own(self) -> tuple[int, ...]:
        """Its distractors."""
        gold = frozenset(self.gold)
        return tuple(number for number in dict.fromkeys([*self.near, *self.article]) if number not in gold)

    @property
    def paragraphs(self) -> tuple[int, ...]:
        """``gold`` and ``own`` in the order of the data."""
        return tuple(dict.fromkeys([*self.row, *self.own]))


@dataclass(frozen=True, slots=True)
class Corpora:
    pool: Pool
    questions: tuple[PoolQuestion, ...]
    skipped: Counter[Skip]
    """Sound rows that are no questions, by reason."""


def load_corpora(paths: Sequence[Path], as_published: bool = False) -> Corpora:
    """Read raw files; ``as_published``: every paragraph, blank ones as well, its sentences joined as they are.

    Raises:
        CorpusError: a file is missing, damaged or of no known kind, a row is broken, an id is repeated, or there is
            no question at all.
    """
    pool, skipped = Pool(), Counter[Skip]()
    questions: list[tuple[PoolQuestion, str]] = []
    seen: dict[str, str] = {}
    articles: dict[str, dict[int, None]] = {}
    for path in paths:
        for where, read in read_questions(path):
            question = read if isinstance(read, Skip) else _usable(read, f"{path}: {where}", blank_too=as_published)
            if isinstance(question, Skip):
                skipped[question] += 1
                continue
            if question.id in seen:
                at = seen[question.id]
                raise CorpusError(f"{path}: {where}: id {question.id} is at {at} already; remove one of the two")
            seen[question.id] = f"{path.name} {where}"
            plain = [paragraph.document for paragraph in question.paragraphs] if as_published else None
            numbers = [pool.add(text) for text in plain or spaced_documents(question.paragraphs)]
            if question.article:
                articles.setdefault(question.article, {}).update(dict.fromkeys(numbers))
            questions.append((_pool_question(question, numbers), question.article))
    if not questions:
        raise CorpusError(f"{', '.join(map(str, paths))}: no question that can be used among {skipped.total()} rows")
    neighbours = {article: tuple(numbers) for article, numbers in articles.items()}
    found = tuple(replace(question, article=neighbours.get(article, ())) for question, article in questions)
    return Corpora(pool, found, skipped)


def _usable(question: Question, where: str, blank_too: bool) -> Question | Skip:
    """The question with its paragraphs that have text, or all of them."""
    kept = tuple(paragraph for paragraph in question.paragraphs if any(map(str.strip, paragraph.sentences)))
    if not kept:
        raise CorpusError(f"{where}: no paragraph has any text; expected a row of HotpotQA, MuSiQue or SQuAD")
    gold = {paragraph.title for paragraph in kept if paragraph.gold}
    found = question if blank_too else replace(question, paragraphs=kept)
    return found if gold and gold.issuperset(question.supporting) else Skip.GOLD_ABSENT


def _pool_question(question: Question, numbers: Sequence[int]) -> PoolQuestion:
    marked = zip(numbers, question.paragraphs, strict=True)
    golden = dict.fromkeys(number for number, paragraph in marked if paragraph.gold)
    every = tuple(dict.fromkeys(numbers))
    near = tuple(number for number in every if number not in golden)
    first: dict[str | None, int] = {}
    for number, paragraph in zip(numbers, question.paragraphs, strict=True):
        first.setdefault(paragraph.title, number)
    facts = fact_titles(question.extras.get("supporting_facts")) or ()
    evidence = tuple(first[title] for title in facts) if all(first.get(title) in golden for title in facts) else ()
    return PoolQuestion(
        question.id, question.question, question.answers, tuple(golden), near, question.supporting, every, evidence
    )


# --- files -----------------------------------------------------------------------------------------------------------
def read_questions(path: Path) -> Iterator[tuple[str, Question | Skip]]:
    """Every row of a file with where it stands. Raises CorpusError."""
    try:
        for row in open_file(path).rows:
            try:
                if row.fields is None:
                    raise BadRow(f"{row.problem}; fetch the file again")
                if not any(name in without_wrapping(row.fields) for name in DOCUMENT_COLUMNS):
                    raise BadRow("fits no known data set; expected HotpotQA, 2WikiMultiHopQA, MuSiQue or SQuAD")
                question = read_question(row.fields)
                if fact_titles(question.extras.get("supporting_facts")) is None:
                    raise BadRow("supporting_facts is neither titles, pairs of title and sentence, nor two columns")
                yield row.where, question
            except Impossible:
                yield row.where, Skip.IMPOSSIBLE
            except BadRow as error:
                raise CorpusError(f"{path}: {row.where}: {error}") from None
    except SourceError as error:
        raise CorpusError(str(error)) from None
