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

Memory is about 1 KB per document and 1 KB per question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .questions import Impossible, Question, fact_titles, read_question, spaced_documents
from .rows import BadRow, BadRows, DataError, open_file

GOLD_ABSENT = "with a supporting document that is not among its paragraphs"


@dataclass(frozen=True, slots=True)
class PoolQuestion:
    """A question whose paragraphs are numbers of documents."""

    id: str
    question: str
    answers: tuple[str, ...]
    gold: tuple[int, ...]
    paragraphs: tuple[int, ...]
    """Those of its row in the order of the data, then those of its article."""
    supporting: tuple[str, ...] = ()
    evidence: tuple[int, ...] = ()
    """The document of every supporting fact, in the order in which the data names the facts, with repetitions; none
    where a fact is in no gold document, as its row marks paragraphs that are no evidence of it."""
    article: str = ""

    @property
    def own(self) -> tuple[int, ...]:
        """Its distractors."""
        return tuple(number for number in self.paragraphs if number not in self.gold)


@dataclass(frozen=True, slots=True)
class Corpora:
    documents: tuple[str, ...]
    questions: tuple[PoolQuestion, ...]
    skipped: Counter[str]
    """Rows that are no questions, by reason."""


def load_corpora(paths: Sequence[Path], as_published: bool = False) -> Corpora:
    """Read raw files; ``as_published``: every paragraph, blank ones as well, its sentences joined as they are.

    Raises DataError: a file is missing, damaged or of no known kind, or there is no question at all.
    """
    bad, skipped = BadRows("raw files"), Counter[str]()
    numbers: dict[str, int] = {}
    questions: dict[str, PoolQuestion] = {}
    places: dict[str, str] = {}
    articles: dict[str, dict[int, None]] = {}
    for path, row in ((each, row) for each in paths for row in open_file(each)):
        try:
            question = read_question(row.fields)
            if question.id in places:
                raise BadRow(f"its id is there already ({question.id}, {places[question.id]}); remove one")
            found = _pool_question(question, numbers, as_published)
        except Impossible as reason:
            skipped[str(reason)] += 1
        except BadRow as error:
            bad.add(f"{path}, {row.where}: {error}")
        else:
            questions[found.id], places[found.id] = found, f"{path.name} {row.where}"
            articles.setdefault(found.article, {}).update(dict.fromkeys(found.paragraphs if found.article else ()))
    bad.tell_rest()
    if bad.count:
        skipped["bad rows"] = bad.count
    if not questions:
        raise DataError(f"{', '.join(map(str, paths))}: no question that can be used among {skipped.total()} rows")
    return Corpora(tuple(numbers), tuple(
        replace(each, paragraphs=tuple(dict.fromkeys([*each.paragraphs, *articles[each.article]])))
        for each in questions.values()
    ), skipped)


def _pool_question(question: Question, numbers: dict[str, int], as_published: bool) -> PoolQuestion:
    """Adds its documents to ``numbers``. Raises BadRow, or Impossible where a gold paragraph is not there."""
    kept = [paragraph for paragraph in question.paragraphs if any(map(str.strip, paragraph.sentences))]
    facts = fact_titles(question.extras.get("supporting_facts"))
    if not kept or facts is None:
        raise BadRow("expected a row of HotpotQA, MuSiQue or SQuAD: paragraphs with text, and supporting_facts that "
                     "are titles, pairs of title and sentence, or two columns")
    titles = {paragraph.title for paragraph in kept if paragraph.gold}
    if not titles or not titles.issuperset(question.supporting):
        raise Impossible(GOLD_ABSENT)
    paragraphs = question.paragraphs if as_published else kept
    texts = [each.document for each in paragraphs] if as_published else spaced_documents(paragraphs)
    own = [numbers.setdefault(text, len(numbers)) for text in texts]
    gold = dict.fromkeys(number for number, paragraph in zip(own, paragraphs, strict=True) if paragraph.gold)
    first: dict[str | None, int] = {}
    for number, paragraph in zip(own, paragraphs, strict=True):
        first.setdefault(paragraph.title, number)
    evidence = tuple(first[title] for title in facts) if all(first.get(title) in gold for title in facts) else ()
    return PoolQuestion(question.id, question.question, question.answers, tuple(gold), tuple(dict.fromkeys(own)),
                        question.supporting, evidence, question.article)


def read_questions(path: Path) -> Iterator[Question | None]:
    """Every row of a file, None where it is marked as impossible. Raises DataError, of a bad row as well."""
    for row in open_file(path):
        try:
            yield read_question(row.fields)
        except Impossible:
            yield None
        except BadRow as error:
            raise DataError(f"{path}: {row.where}: {error}") from None
