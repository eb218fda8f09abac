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
- ids are unique: of two rows with one id the second is a bad row. Bad rows are skipped, named and counted, and sound
  rows of no use are counted by reason.

Texts are Arrow arrays, not a Python object each: forked worker processes share them, as reading touches no reference
counts. Memory is about 1.2 KB per document and 1 KB per question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import pyarrow as pa

from ..rewards.qa_metrics import normalise_squad
from .questions import Impossible, Question, fact_titles, read_question, spaced_documents
from .rows import BadRow, BadRows, DataError, open_file


class Skip(StrEnum):
    """Why a sound row is of no use."""

    IMPOSSIBLE = "marked as impossible to answer"
    GOLD_ABSENT = "with a supporting document that is not among its paragraphs"


class Pool:
    """Documents by number, with their words in SQuAD form between blanks, for the search of answers."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = pa.array(texts, pa.large_string())
        self._words = pa.array((f" {normalise_squad(text)} " for text in texts), pa.large_string())

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, number: int) -> str:
        return self._texts[number].as_py()

    def words(self, number: int) -> str:
        return self._words[number].as_py()


@dataclass(frozen=True, slots=True)
class PoolQuestion:
    """A question whose paragraphs are numbers of documents."""

    id: str
    question: str
    answers: tuple[str, ...]
    gold: tuple[int, ...]
    row: tuple[int, ...]
    """The paragraphs of its row in the order of the data."""
    supporting: tuple[str, ...]
    evidence: tuple[int, ...] = ()
    """The document of every supporting fact, in the order in which the data names the facts, with repetitions; none
    where a fact is in no gold document, as its row marks paragraphs that are no evidence of it."""
    article: tuple[int, ...] = ()
    """All paragraphs of its article: one tuple for all questions of it."""

    @property
    def paragraphs(self) -> tuple[int, ...]:
        """Those of its row, then those of its article."""
        return tuple(dict.fromkeys([*self.row, *self.article]))

    @property
    def own(self) -> tuple[int, ...]:
        """Its distractors."""
        return tuple(number for number in self.paragraphs if number not in self.gold)


@dataclass(frozen=True, slots=True)
class Corpora:
    pool: Pool
    questions: tuple[PoolQuestion, ...]
    skipped: Counter[str]
    """Rows that are no questions, by reason."""


def load_corpora(paths: Sequence[Path], as_published: bool = False, strict: bool = False) -> Corpora:
    """Read raw files; ``as_published``: every paragraph, blank ones as well, its sentences joined as they are.

    Raises:
        DataError: a file is missing, damaged or of no known kind, or there is no question at all.
        NoGoodRows: a row is bad, and ``strict`` is asked for.
    """
    bad = BadRows("raw files", strict=strict)
    numbers: dict[str, int] = {}
    skipped: Counter[str] = Counter()
    questions: dict[str, tuple[PoolQuestion, str]] = {}
    places: dict[str, str] = {}
    articles: dict[str, dict[int, None]] = {}
    for path in paths:
        for where, read in read_questions(path, bad):
            question = read if isinstance(read, Skip) else _usable(read, blank_too=as_published)
            if isinstance(question, Skip):
                skipped[question] += 1
                continue
            if question.id in questions:
                bad.add(f"{path}, {where}: its id is there already ({question.id}, {places[question.id]}); remove one")
                continue
            if not question.paragraphs:
                bad.add(f"{path}, {where}: no paragraph has any text; expected a row of HotpotQA, MuSiQue or SQuAD")
                continue
            plain = [paragraph.document for paragraph in question.paragraphs]
            texts = plain if as_published else spaced_documents(question.paragraphs)
            row = [numbers.setdefault(text, len(numbers)) for text in texts]
            if question.article:
                articles.setdefault(question.article, {}).update(dict.fromkeys(row))
            questions[question.id] = _pool_question(question, row), question.article
            places[question.id] = f"{path.name} {where}"
    bad.tell_rest()
    if bad.count:
        skipped["bad rows"] = bad.count
    if not questions:
        raise DataError(f"{', '.join(map(str, paths))}: no question that can be used among {skipped.total()} rows")
    neighbours = {article: tuple(found) for article, found in articles.items()}
    found = tuple(replace(question, article=neighbours.get(article, ())) for question, article in questions.values())
    return Corpora(Pool(numbers), found, skipped)


def _usable(question: Question, blank_too: bool) -> Question | Skip:
    """The question with its paragraphs that have text, or all of them."""
    kept = tuple(paragraph for paragraph in question.paragraphs if any(map(str.strip, paragraph.sentences)))
    gold = {paragraph.title for paragraph in kept if paragraph.gold}
    if kept and not (gold and gold.issuperset(question.supporting)):
        return Skip.GOLD_ABSENT
    return question if kept and blank_too else replace(question, paragraphs=kept)


def _pool_question(question: Question, numbers: Sequence[int]) -> PoolQuestion:
    first: dict[str | None, int] = {}
    gold: dict[int, None] = {}
    for number, paragraph in zip(numbers, question.paragraphs, strict=True):
        first.setdefault(paragraph.title, number)
        if paragraph.gold:
            gold[number] = None
    facts = fact_titles(question.extras.get("supporting_facts")) or ()
    evidence = tuple(first[title] for title in facts) if all(first.get(title) in gold for title in facts) else ()
    row = tuple(dict.fromkeys(numbers))
    return PoolQuestion(
        question.id, question.question, question.answers, tuple(gold), row, question.supporting, evidence
    )


def read_questions(path: Path, bad: BadRows | None = None) -> Iterator[tuple[str, Question | Skip]]:
    """Every row of a file with where it stands; bad ones go to ``bad``. Raises DataError, of a bad row without it."""
    for row in open_file(path).rows:
        try:
            if row.fields is None:
                raise BadRow(row.problem)
            question: Question | Skip = read_question(row.fields)
            if isinstance(question, Question) and fact_titles(question.extras.get("supporting_facts")) is None:
                raise BadRow("supporting_facts is neither titles, pairs of title and sentence, nor two columns")
        except Impossible:
            question = Skip.IMPOSSIBLE
        except BadRow as error:
            if bad is None:
                raise DataError(f"{path}: {row.where}: {error}") from None
            bad.add(f"{path}, {row.where}: {error}")
            continue
        yield row.where, question
