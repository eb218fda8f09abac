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

import orjson

from .pool import PoolQuestion, Skip, read_questions
from .questions import Impossible, Question, read_question
from .rows import DataError, squad_rows


@dataclass(frozen=True, slots=True)
class Corpus:
    name: str
    documents: tuple[str, ...]
    questions: tuple[PoolQuestion, ...]


def read_squad(path: Path) -> Corpus:
    """An original SQuAD file. Raises DataError."""
    found = list[tuple[Question, list[str], int]]()
    try:
        articles = list(orjson.loads(path.read_bytes())["data"])
        for number, fields in squad_rows(articles):
            try:
                question = read_question(fields)
            except Impossible:
                continue
            found.append((question, [question.context], number))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not a SQuAD file ({error})") from None
    groups = {number: [paragraph["context"] for paragraph in articles[number - 1]["paragraphs"]]
              for number in {number for _, _, number in found}}
    return _corpus(path, found, groups)


def read_hotpotqa(path: Path) -> Corpus:
    """A HotpotQA file of any shape. Raises DataError."""
    found, groups = list[tuple[Question, list[str], int]](), dict[int, list[str]]()
    for where, question in read_questions(path):
        if isinstance(question, Skip):
            continue
        if not question.paragraphs:
            raise DataError(f"{path}: {where}: its context is no list of paragraphs; expected a row of HotpotQA")
        documents = {paragraph.title: paragraph for paragraph in question.paragraphs}.values()
        near = groups[len(groups)] = [paragraph.document for paragraph in documents]
        found.append((question, [paragraph.document for paragraph in documents if paragraph.gold] or near, len(found)))
    return _corpus(path, found, groups)


def _corpus(path: Path, found: list[tuple[Question, list[str], int]], groups: dict[int, list[str]]) -> Corpus:
    """``found``: a question, its gold documents, and the number of the group where it and its others are."""
    documents = sorted({document for group in groups.values() for document in group})
    if not documents:
        raise DataError(f"{path}: no question with an answer among paragraphs")
    place = {document: number for number, document in enumerate(documents)}

    def numbers(texts: Iterable[str]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(place[text] for text in texts))

    groups_of_numbers = {key: numbers(group) for key, group in groups.items()}
    questions = tuple(
        PoolQuestion(question.id, question.question, question.answers, numbers(gold), (), (),
                     article=groups_of_numbers[key])
        for question, gold, key in found
    )
    return Corpus(path.name, tuple(documents), questions)
