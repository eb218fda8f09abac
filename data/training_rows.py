"""Training rows out of rows of any known shape.

============  ==================================================  ============================================
``plain``     question, answer or answers, context or paragraphs  ``questions.read_question``
``hotpotqa``  question, answer, context                           the same
``memagent``  prompt, context, reward_model                       ``questions.read_memagent_question``
``pack``      prompt, metadata: rows that this module has made    unchanged
============  ==================================================  ============================================

A row with a long document names it by id; the document itself belongs into the store (``document_store``)::

    {"prompt": "Who?", "label": "Ann", "metadata": {"ground_truth": ["Ann"], "context": "Document 1:\\n..."}}
    {"prompt": "Who?", "label": "Ann", "metadata": {"ground_truth": ["Ann"], "context_id": "9f86d081884c7d65"}}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .document_store import DocumentStore, MissingDocument, document_id
from .questions import COLUMNS as QUESTION_COLUMNS
from .questions import OWN_COLUMNS, BadRow, Question, own_row, read_memagent_question, read_question

COLUMNS = QUESTION_COLUMNS.union(OWN_COLUMNS)
"""Every field that is looked at; a reader may leave out all others."""


class Schema(StrEnum):
    MEMAGENT = "memagent"
    PLAIN = "plain"
    HOTPOTQA = "hotpotqa"
    PACK = "pack"


class UnknownSchema(BadRow):
    """Columns of no known schema."""

    def __init__(self) -> None:
        super().__init__(
            "fits no known schema; expected {question, answer or answers, context: a text, texts or paragraphs}, rows "
            "of HotpotQA, 2WikiMultiHopQA, MuSiQue or SQuAD, MemAgent's {prompt, context, reward_model}, or this "
            "pack's {prompt, label, metadata}"
        )


def schema_of(columns: Collection[str]) -> Schema:
    """The schema these columns belong to, judged by the columns only it has. Raises UnknownSchema."""
    if "reward_model" in columns:
        return Schema.MEMAGENT
    if "metadata" in columns and "prompt" in columns:
        return Schema.PACK
    if "question" in columns or "answer" in columns:
        return Schema.PLAIN
    raise UnknownSchema


@dataclass(frozen=True, slots=True)
class Conversion:
    """What rows are taken, and what becomes of them."""

    schema: Schema | None
    """None: each row says by its fields."""
    needs_document: bool
    inline_chars: int
    """Longer documents go into the store."""
    store: DocumentStore | None
    """Documents of the pack's own rows; None where rows come without one."""

    def row(self, fields: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
        """The training row, and its document if that is not inline.

        Raises:
            BadRow: the row fits no schema, or lacks a question, an answer or a document.
            MissingDocument: it names a document by id, and there is no store, or a damaged one.
        """
        match self.schema or schema_of(fields):
            case Schema.PACK:
                return self._own(own_row(fields, self.needs_document))
            case Schema.MEMAGENT:
                return row_of(read_memagent_question(fields, self.needs_document), self.inline_chars)
            case _:
                return row_of(read_question(fields, self.needs_document), self.inline_chars)

    def _own(self, row: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
        context_id = row["metadata"].get("context_id")
        if context_id is None or row["metadata"].get("context") is not None:
            return row, None
        if self.store is None:
            raise MissingDocument("rows name documents by id; convert their file by --input, with its .docs folder")
        if context_id not in self.store:
            raise BadRow(f"{self.store.path} has no document {context_id!r}")
        return row, self.store.get(context_id)


def row_of(question: Question, inline_chars: int) -> tuple[dict[str, Any], str | None]:
    """The training row of a question, and its document if that is longer than ``inline_chars``."""
    document = question.document
    metadata = {"ground_truth": question.answers} | ({"context": document} if document else {}) | question.extras
    if question.supporting and "supporting_facts" not in metadata:
        metadata["supporting"] = question.supporting
    row = {"prompt": question.question, "label": question.answers[0], "metadata": metadata}
    if len(document) <= inline_chars:
        return row, None
    del metadata["context"]
    metadata["context_id"] = document_id(document)
    return row, document
