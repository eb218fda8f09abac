"""Rows of question answering data sets, whatever their shape, as ``Question``, and questions as training rows.

=========  ===========================================================================================================
plain      ``question``; ``answer`` or ``answers``, a text, a number or a list of them; ``context``, a text, a list of
           texts or a list of paragraphs, each ``[title, text]`` or ``{"title": ..., "text": ...}``
HotpotQA,  ``context`` and ``supporting_facts`` as lists of pairs (the original files), as columns (Hugging Face) or as
2Wiki      the JSON text of either (some parquet copies); what follows a title is a list of sentences
FlashRAG   ``golden_answers``; the fields of HotpotQA's columns (or ``content`` for ``sentences``) in ``metadata``
MuSiQue    ``paragraphs[{title, paragraph_text, is_supporting}]`` in place of ``context``; more in ``answer_aliases``
SQuAD      ``answers{text}``; ``rows`` brings the original files, one object of articles, into this shape
MemAgent   ``prompt`` (text or chat messages) or ``extra_info.question``; ``context``; ``reward_model.ground_truth``
own        ``prompt, label, metadata{ground_truth, context or context_id}``: training rows already, kept unchanged
=========  ===========================================================================================================

A worked example, of which all shapes of HotpotQA give the same::

    {"_id": "5a", "question": "Who?", "answer": "Ann", "supporting_facts": [["Ann", 0]],
     "context": [["Ann", ["Ann is.", " She was."]], ["Bob", ["Bob is."]]]}
    -> question "Who?", answers ("Ann",), supporting ("Ann",), paragraphs (gold first, then another)
       (Paragraph("Ann", ("Ann is.", " She was."), True), Paragraph("Bob", ("Bob is.",), False))
       document "Document 1:\\nAnn\\nAnn is. She was.\\n\\nDocument 2:\\nBob\\nBob is."
    -> {"prompt": "Who?", "label": "Ann", "metadata": {"ground_truth": ["Ann"], "context": "Document 1:\\n...", ...}}

A question, its answers and, unless none is needed, its document are not blank; answers keep the order of the data
without duplicates. A row that cannot meet this raises ``BadRow``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

import orjson

from .document_store import DocumentStore, MissingDocument, document_id
from .rows import BadRow

_KEPT = ("id", "level", "type", "supporting_facts", "task")
_OWN_FIELDS = ("prompt", "label", "metadata")
_NO_DOCUMENT = "context is missing; only prepare --no-context takes questions without a document"


class Impossible(BadRow):
    """A sound row whose question has no answer, on purpose."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    title: str | None
    sentences: tuple[str, ...]
    gold: bool = True
    """Whether the answer is made from it; True of all where nobody marked any."""

    @property
    def document(self) -> str:
        """Title and sentences as the data has them."""
        text = "".join(self.sentences)
        return text if self.title is None else f"{self.title}\n{text}"


@dataclass(frozen=True, slots=True)
class Question:
    question: str
    answers: tuple[str, ...]
    context: str = ""
    """The document, where the data has it as one text."""
    paragraphs: tuple[Paragraph, ...] = ()
    supporting: tuple[str, ...] = ()
    """Titles of the gold paragraphs; empty where the data does not mark any."""
    article: str = ""
    """SQuAD: whatever else is in this article is about the same subject."""
    extras: dict[str, Any] = field(default_factory=dict)
    """Fields that go into the training row's metadata unchanged."""

    @property
    def id(self) -> str:
        """The row's own or, without one, a digest of its question."""
        given = self.extras.get("id")
        return hashlib.sha256(self.question.encode()).hexdigest()[:16] if given is None else str(given)

    @property
    def document(self) -> str:
        """What is to be read; empty for a question without a document."""
        return self.context or assemble(spaced_documents(self.paragraphs))


def assemble(texts: Iterable[str]) -> str:
    """One text of all documents, numbered from 1."""
    return "\n\n".join(f"Document {number}:\n{text}" for number, text in enumerate(texts, start=1))


def spaced_documents(paragraphs: Sequence[Paragraph]) -> list[str]:
    """The documents of one row's paragraphs, with blanks between sentences.

    HotpotQA's sentences begin with theirs, except those that stood without one (``Go!`` before ``" is``); 2Wiki's
    bring none. So the majority of the row's joints says whether its text is whole as it is, or needs blanks::

        ("He saw", ' "Go!', '" twice.')  ->  He saw "Go!" twice.        HotpotQA
        ("Ann is.", "She was.")          ->  Ann is. She was.           2WikiMultiHopQA
    """
    joints = [
        _are_apart(before, after)
        for paragraph in paragraphs for before, after in pairwise(filter(None, paragraph.sentences))
    ]
    if 2 * sum(joints) >= len(joints):
        return [paragraph.document for paragraph in paragraphs]
    return [replace(paragraph, sentences=_spaced(paragraph.sentences)).document for paragraph in paragraphs]


def _spaced(sentences: Iterable[str]) -> tuple[str, ...]:
    spaced: list[str] = []
    for sentence in filter(None, sentences):
        spaced.append(sentence if not spaced or _are_apart(spaced[-1], sentence) else f" {sentence}")
    return tuple(spaced)


def _are_apart(before: str, after: str) -> bool:
    return before[-1].isspace() or after[0].isspace()


# --- training rows ---------------------------------------------------------------------------------------------------
def is_own_row(fields: Mapping[str, Any]) -> bool:
    """Whether it is a training row already."""
    return "prompt" in fields and "metadata" in fields and "reward_model" not in fields


def own_row(
    fields: Mapping[str, Any], needs_document: bool = True, store: DocumentStore | None = None
) -> tuple[dict[str, Any], str | None]:
    """A training row of this pack, unchanged, and its document if that is in ``store``.

    Raises:
        BadRow: it lacks a question, an answer or a document.
        MissingDocument: it names a document that is in no store.
    """
    metadata = fields["metadata"]
    if not isinstance(metadata, Mapping):
        raise BadRow(f"metadata is {_kind(metadata)}, expected an object")
    _text(_chat_text(fields["prompt"]), "prompt")
    _answers("metadata.ground_truth", metadata.get("ground_truth"))
    given = [name for name in ("context", "context_id") if metadata.get(name) is not None]
    for name in given:
        _text(metadata[name], f"metadata.{name}")
    if needs_document and not given:
        raise BadRow(f"metadata.{_NO_DOCUMENT}")
    row = {name: fields[name] for name in _OWN_FIELDS if name in fields}
    if given != ["context_id"]:
        return row, None
    if store is None:
        raise MissingDocument("rows name documents by id; convert their file by --input, with its .docs folder")
    return row, store.get(metadata["context_id"])


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


# --- data sets -------------------------------------------------------------------------------------------------------
def read_question(fields: Mapping[str, Any], needs_document: bool = True) -> Question:
    """The question of a row of any data set. Raises BadRow."""
    if not any(name in fields for name in ("question", "answer", "reward_model")):
        raise BadRow(
            "fits no known schema; expected {question, answer or answers, context: a text, texts or paragraphs}, rows "
            "of HotpotQA, 2WikiMultiHopQA, MuSiQue or SQuAD, MemAgent's {prompt, context, reward_model}, or this "
            "pack's {prompt, label, metadata}"
        )
    fields = {name: value for name, value in _flashrag(fields).items() if value is not None}
    if needs_document and "context" not in fields and "paragraphs" not in fields:
        raise BadRow(_NO_DOCUMENT)
    extras = {name: fields[name] for name in _KEPT if name in fields}
    if "id" not in extras and "_id" in fields:  # the original HotpotQA files
        extras = {"id": fields["_id"]} | extras
    if "task" in extras:
        _text(extras["task"], "task")
    if "reward_model" in fields:
        return _memagent(fields, extras)
    listed = fields.get("answers")
    is_squad = isinstance(listed, dict)
    texts = _member(listed, "text") if is_squad else listed
    if fields.get("is_impossible") is True or fields.get("answerable") is False or (is_squad and texts == []):
        raise Impossible("marked as impossible to answer")
    answers = _answers("answer", fields.get("answer"), texts, fields.get("answer_aliases"))
    found = Question(_text(fields.get("question"), "question"), answers, extras=extras)
    name = "paragraphs" if "paragraphs" in fields else "context"
    given = fields.get(name)
    if "supporting_facts" in extras:
        extras["supporting_facts"], given = _decoded(extras["supporting_facts"]), _decoded(given)
    if given is None:
        return found
    if not isinstance(given, str):
        facts = fact_titles(extras.get("supporting_facts")) or ()
        paragraphs, supporting = _paragraphs(given, name, tuple(dict.fromkeys(facts)))
        return replace(found, paragraphs=paragraphs, supporting=supporting)
    if not is_squad or not fields.get("title"):
        return replace(found, context=_text(given, name))
    title, text = _text(fields["title"], "title"), _text(given, name)
    return replace(found, context=text, paragraphs=(Paragraph(title, (text,)),), supporting=(title,), article=title)


def fact_titles(supporting_facts: Any) -> tuple[str, ...] | None:
    """The title of every fact, given as such, in pairs with a sentence, or as a column; None of anything else.

    A paragraph with two supporting sentences is named twice.
    """
    facts = supporting_facts.get("title") if isinstance(supporting_facts, dict) else supporting_facts or []
    if not isinstance(facts, list):
        return None
    titles = [fact[0] if isinstance(fact, list) and fact else fact for fact in facts]
    return tuple(titles) if all(isinstance(title, str) for title in titles) else None


def _flashrag(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of FlashRAG's copies in the columns of the data set itself (as ReMemR1's process_test.py reads it)."""
    metadata = fields.get("metadata")
    if "golden_answers" not in fields or not isinstance(metadata, Mapping):
        return fields
    inner = {name: metadata[name] for name in ("level", "type", "supporting_facts", "context") if name in metadata}
    context = inner.get("context")
    if isinstance(context, Mapping) and "sentences" not in context:
        inner["context"] = {"title": context.get("title"), "sentences": context.get("content")}
    return {"id": fields.get("id"), "question": fields.get("question"), "answers": fields["golden_answers"]} | inner


def _memagent(fields: Mapping[str, Any], extras: dict[str, Any]) -> Question:
    question = _chat_text(fields.get("prompt")) or _member(fields.get("extra_info"), "question")
    return Question(
        _text(question, "prompt (and extra_info.question)"),
        _answers("reward_model.ground_truth", _member(fields["reward_model"], "ground_truth")),
        _text(fields["context"], "context") if "context" in fields else "",
        extras=extras,
    )


def _paragraphs(value: Any, name: str, titles: tuple[str, ...]) -> tuple[tuple[Paragraph, ...], tuple[str, ...]]:
    """Paragraphs of any shape, and the titles of the gold ones where ``titles`` or the paragraphs mark them."""
    if isinstance(value, dict):
        try:
            value = list(zip(value["title"], value["sentences"], strict=True))
        except (KeyError, TypeError, ValueError):
            raise BadRow(f"{name} has no title and sentences lists of equal length") from None
    if not isinstance(value, list):
        raise BadRow(f"{name} is {_kind(value)}, expected a text, a list of texts or paragraphs")
    marked = any(isinstance(entry, dict) and entry.get("is_supporting") is not None for entry in value)
    found = []
    for entry in value:
        title, sentences = _title_and_sentences(entry, name)
        gold = isinstance(entry, dict) and entry.get("is_supporting") is True if marked else not titles
        found.append(Paragraph(title, sentences, gold or (not marked and title in titles)))
    if not any(paragraph.document.strip() for paragraph in found):
        raise BadRow(f"{name} is blank")
    if marked:
        titles = tuple(dict.fromkeys(p.title for p in found if p.gold and p.title is not None))
    return tuple(found), titles


def _title_and_sentences(entry: Any, name: str) -> tuple[str | None, tuple[str, ...]]:
    title: Any = None
    text: Any = [None]
    match entry:
        case str():
            text = entry
        case [title, text]:
            pass
        case {"text": text} | {"paragraph_text": text} | {"sentences": text}:
            title = entry.get("title")
    sentences = tuple(text) if isinstance(text, list) else ("" if text is None else text,)
    if not isinstance(title, str | None) or not all(isinstance(sentence, str) for sentence in sentences):
        raise BadRow(f"{name} holds a paragraph that is neither a text nor a title with a text or a list of sentences")
    return title, sentences


# --- fields ----------------------------------------------------------------------------------------------------------
def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _chat_text(prompt: Any) -> Any:
    """What the user says in chat messages, whose content may come in parts; anything else as it is."""
    if not isinstance(prompt, list):
        return prompt
    texts = []
    for message in prompt:
        if not isinstance(message, Mapping):
            raise BadRow(f"prompt holds {_kind(message)}, expected chat messages")
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
        if message.get("role", "user") == "user":
            texts.append(_text(content, "content of a prompt message") if content else "")
    return "\n\n".join(filter(None, texts))


def _answers(name: str, *values: Any) -> tuple[str, ...]:
    """All that is not blank in texts, numbers and lists of them, in order and each once."""
    found: dict[str, None] = {}
    for answer in (each for value in values for each in (value if isinstance(value, list) else [value])):
        if answer is None or answer != answer:  # pandas writes NaN for what is missing
            continue
        if isinstance(answer, bool) or not isinstance(answer, str | int | float | Decimal):
            raise BadRow(f"{name} holds {_kind(answer)}, expected text")
        if str(answer).strip():
            found[str(answer)] = None
    if not found:
        raise BadRow(f"{name} is missing or empty; use rows that have answers, such as those of a train or dev split")
    return tuple(found)


def _decoded(value: Any) -> Any:
    """The list or object whose JSON text ``value`` is; itself where it is none."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        return orjson.loads(value)
    except ValueError:
        return value


def _text(value: Any, name: str) -> str:
    if value is None or value == "":
        raise BadRow(f"{name} is missing or empty")
    if not isinstance(value, str):
        raise BadRow(f"{name} is {_kind(value)}, expected text")
    if not value.strip():
        raise BadRow(f"{name} is blank")
    return value


def _kind(value: Any) -> str:
    return "missing" if value is None else type(value).__name__
