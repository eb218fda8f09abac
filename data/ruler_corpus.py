"""RULER's questions over the documents of one file, sorted and each there once.

=========  ================================  =========================================================
file       a document                        a question's ``gold``, then ``own``
=========  ================================  =========================================================
SQuAD      one paragraph, without its title  its paragraph; the rest of the article, asked about or not
HotpotQA   title, newline, all sentences     supporting documents, or all; its other ones
=========  ================================  =========================================================

This is not ``pool.load_corpora``: RULER's samples are drawn from sorted documents in the data's own spacing, and a
change of either would change their bytes. Invariant: ``gold`` documents exist and none of them is ``own``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .pool import CorpusError, PoolQuestion, Skip, read_articles, read_questions
from .questions import BadRow, Impossible, Question, read_question, squad_rows


@dataclass(frozen=True, slots=True)
class Corpus:
    name: str
    documents: tuple[str, ...]
    questions: tuple[PoolQuestion, ...]


def read_squad(path: Path) -> Corpus:
    """An original SQuAD file. Raises CorpusError."""
    articles, found = read_articles(path), []
    try:
        for number, fields in squad_rows(articles):
            try:
                question = read_question(fields)
            except Impossible:
                continue
            near = [paragraph["context"] for paragraph in articles[number - 1]["paragraphs"]]
            found.append((question, [question.context], near))
    except BadRow as error:
        raise CorpusError(f"{path}: {error}") from None
    return _corpus(path, found)


def read_hotpotqa(path: Path) -> Corpus:
    """A HotpotQA file of any shape. Raises CorpusError."""
    found = []
    for _, question in read_questions(path):
        if isinstance(question, Skip):
            continue
        documents = {paragraph.title: paragraph for paragraph in question.paragraphs}.values()
        gold = [paragraph.document for paragraph in documents if paragraph.gold]
        near = [paragraph.document for paragraph in documents]
        found.append((question, gold or near, near))
    return _corpus(path, found)


def _corpus(path: Path, found: list[tuple[Question, list[str], list[str]]]) -> Corpus:
    documents = sorted({document for _, gold, near in found for document in [*gold, *near]})
    if not documents:
        raise CorpusError(f"{path}: no question with an answer among paragraphs")
    number = {document: place for place, document in enumerate(documents)}

    def numbers(texts: Iterable[str]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(number[text] for text in texts))

    questions = []
    for question, gold, near in found:
        own = numbers(document for document in near if document not in gold)
        questions.append(PoolQuestion(question.id, question.question, question.answers, numbers(gold), own, ()))
    return Corpus(path.name, tuple(documents), tuple(questions))
