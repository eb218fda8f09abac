"""Questions over a pool of documents, read from SQuAD and HotpotQA files.

======================  ========================================  ===============================================
file                    a document                                ``needed``, then ``near``
======================  ========================================  ===============================================
SQuAD JSON              one paragraph                             its paragraph; the rest of the article
HotpotQA JSON           ``title``, newline, all its sentences     supporting documents; its other ones
======================  ========================================  ===============================================

HotpotQA rows may hold ``[title, [sentence, ...]]`` pairs (the original file) or ``{"title": [...], "sentences":
[[...]]}`` (the Hugging Face layout); a row without ``supporting_facts`` needs all its documents. Questions marked as
impossible are left out.

Invariants: documents are sorted and each is there once; needed documents exist and none of them is near; every
question has at least one non-empty answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from ..system.errors import MemAgentError


class CorpusError(MemAgentError):
    """A file of questions is absent, damaged, or not of the expected layout."""


@dataclass(frozen=True, slots=True)
class Question:
    """``needed`` and ``near`` are numbers of documents: those that hold the answer, and those to mix in first."""

    text: str
    answers: tuple[str, ...]
    needed: tuple[int, ...]
    near: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    name: str
    documents: tuple[str, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    text: str
    answers: tuple[str, ...]
    needed: tuple[str, ...]
    near: tuple[str, ...]


def read_squad(path: Path) -> Corpus:
    """Raises CorpusError."""
    return _corpus(path, _squad_rows, "a SQuAD file: {'data': [{'paragraphs': [{'context', 'qas'}]}]}")


def read_hotpotqa(path: Path) -> Corpus:
    """Raises CorpusError."""
    return _corpus(path, _hotpotqa_rows, "a HotpotQA file: a list of {'question', 'answer', 'context'}")


def _corpus(path: Path, rows_of: Callable[[Any], Iterator[_Row]], expected: str) -> Corpus:
    try:
        rows = [row for row in rows_of(orjson.loads(path.read_bytes())) if row.answers]
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); download the raw file first") from None
    except orjson.JSONDecodeError as error:
        raise CorpusError(f"{path}: not JSON ({error}); download the raw file again") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorpusError(f"{path}: not {expected} ({type(error).__name__}: {error})") from None
    if not rows:
        raise CorpusError(f"{path}: no question with an answer; expected {expected}")
    documents = sorted(set(chain.from_iterable(row.needed + row.near for row in rows)))
    number = {document: place for place, document in enumerate(documents)}
    questions = [
        Question(
            row.text,
            row.answers,
            _numbers(row.needed, number),
            _numbers((document for document in row.near if document not in row.needed), number),
        )
        for row in rows
    ]
    return Corpus(path.name, tuple(documents), tuple(questions))


def _numbers(documents: Iterable[str], number: dict[str, int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(number[document] for document in documents))


def _squad_rows(content: Any) -> Iterator[_Row]:
    for article in content["data"]:
        article_texts = tuple(paragraph["context"] for paragraph in article["paragraphs"])
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:
                if asked.get("is_impossible", False):
                    continue
                answers = _answers(answer["text"] for answer in asked["answers"])
                yield _Row(asked["question"], answers, (paragraph["context"],), article_texts)


def _hotpotqa_rows(content: Any) -> Iterator[_Row]:
    for row in content:
        context = _pairs(row["context"], "sentences")
        documents = {title: f"{title}\n{''.join(sentences)}" for title, sentences in context}
        supporting = {title for title, _ in _pairs(row.get("supporting_facts", []), "sent_id")} & documents.keys()
        needed = tuple(text for title, text in documents.items() if title in supporting or not supporting)
        yield _Row(row["question"], _answers([row["answer"]]), needed, tuple(documents.values()))


def _pairs(table: Any, second: str) -> list[tuple[str, Any]]:
    if isinstance(table, dict):
        return list(zip(table["title"], table[second], strict=True))
    return [(title, other) for title, other in table]


def _answers(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text.strip()))
