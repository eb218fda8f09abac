"""Rows of question answering data sets, whatever their shape, as ``Question``.

=========  ===========================================================================================================
plain      ``question``; ``answer`` or ``answers``, a text, a number or a list of them; ``context``, a text, a list of
           texts or a list of paragraphs, each ``[title, text]`` or ``{"title": ..., "text": ...}``
HotpotQA,  ``context`` and ``supporting_facts`` as lists of pairs (the original files), as columns (Hugging Face) or as
2Wiki      the JSON text of either (some parquet copies); what follows a title is a list of sentences
FlashRAG   ``golden_answers``; the fields of HotpotQA's columns (or ``content`` for ``sentences``) in ``metadata``
MuSiQue    ``paragraphs[{title, paragraph_text, is_supporting}]`` in place of ``context``; more in ``answer_aliases``
SQuAD      ``answers{text}``; ``sources`` brings the original files, one object of articles, into this shape
MemAgent   ``prompt`` (text or chat messages) or ``extra_info.question``; ``context``; ``reward_model.ground_truth``
own        ``prompt, label, metadata{ground_truth, context or context_id}``: training rows already (``own_row``)
=========  ===========================================================================================================

A worked example, of which all shapes of HotpotQA give the same::

    {"_id": "5a", "question": "Who?", "answer": "Ann", "supporting_facts": [["Ann", 0]],
     "context": [["Ann", ["Ann is.", " She was."]], ["Bob", ["Bob is."]]]}
    -> question "Who?", answers ("Ann",), supporting ("Ann",), paragraphs (gold first, then another)
       (Paragraph("Ann", ("Ann is.", " She was."), True), Paragraph("Bob", ("Bob is.",), False))
       document "Document 1:\\nAnn\\nAnn is. She was.\\n\\nDocument 2:\\nBob\\nBob is."

A Question has a question, an answer and, unless none is needed, a document that are not blank; its answers keep the
order of the data without duplicates. A row that cannot meet them raises ``BadRow``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import orjson

from ..system.errors import MemAgentError
from .paragraphs import Paragraph, spaced_documents


class BadRow(MemAgentError, ValueError):
    """A row without a usable question, document or answer; the message says which field and why."""


class Impossible(BadRow):
    """A sound row whose question has no answer, on purpose."""


_KEPT = ("id", "level", "type", "supporting_facts", "task")
COLUMNS = frozenset(
    {"question", "answer", "answers", "answer_aliases", "is_impossible", "answerable", "title", "prompt", "extra_info"}
    | {"context", "paragraphs", "reward_model", "_id", "golden_answers", "metadata", *_KEPT}
)
"""Every field that is looked at; a reader may leave out all others."""
DOCUMENT_COLUMNS = ("context", "paragraphs")
OWN_COLUMNS = ("prompt", "label", "metadata")
_NO_DOCUMENT = "context is missing; only --no-context takes questions without a document"


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


def read_question(fields: Mapping[str, Any], needs_document: bool = True) -> Question:
    """The question of a row of any data set but MemAgent's. Raises BadRow."""
    fields = _known(without_wrapping(fields), needs_document)
    listed = fields.get("answers")
    is_squad = isinstance(listed, dict)
    texts = _member(fields, "answers", "text") if is_squad else listed
    if fields.get("is_impossible") is True or fields.get("answerable") is False or (is_squad and texts == []):
        raise Impossible("marked as impossible to answer")
    answers = _answers("answer", fields.get("answer"), texts, fields.get("answer_aliases"))
    found = Question(_text(fields.get("question"), "question"), answers, extras=_extras(fields))
    name = "paragraphs" if "paragraphs" in fields else "context"
    given = fields.get(name)
    if "supporting_facts" in found.extras:
        found.extras["supporting_facts"], given = _decoded(found.extras["supporting_facts"]), _decoded(given)
    if given is None:
        return found
    if not isinstance(given, str):
        paragraphs, supporting = _paragraphs(given, name, titles_of(found.extras.get("supporting_facts")) or ())
        return replace(found, paragraphs=paragraphs, supporting=supporting)
    if not is_squad or not fields.get("title"):
        return replace(found, context=_text(given, name))
    title, text = _text(fields["title"], "title"), _text(given, name)
    return replace(found, context=text, paragraphs=(Paragraph(title, (text,)),), supporting=(title,), article=title)


def without_wrapping(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of FlashRAG's copies in the columns of the data set itself (as ReMemR1's process_test.py reads it)."""
    metadata = fields.get("metadata")
    if "golden_answers" not in fields or not isinstance(metadata, Mapping):
        return fields
    inner = {name: metadata[name] for name in ("level", "type", "supporting_facts", "context") if name in metadata}
    context = inner.get("context")
    if isinstance(context, Mapping) and "sentences" not in context:
        inner["context"] = {"title": context.get("title"), "sentences": context.get("content")}
    return {"id": fields.get("id"), "question": fields.get("question"), "answers": fields["golden_answers"]} | inner


def read_memagent_question(fields: Mapping[str, Any], needs_document: bool = True) -> Question:
    """The question of a row of MemAgent's. Raises BadRow."""
    fields = _known(fields, needs_document)
    question = _chat_text(fields.get("prompt")) or _member(fields, "extra_info", "question")
    return Question(
        _text(question, "prompt (and extra_info.question)"),
        _answers("reward_model.ground_truth", _member(fields, "reward_model", "ground_truth")),
        _text(fields["context"], "context") if "context" in fields else "",
        extras=_extras(fields),
    )


def own_row(fields: Mapping[str, Any], needs_document: bool = True) -> dict[str, Any]:
    """A training row of this pack, unchanged. Raises BadRow."""
    metadata = fields.get("metadata")
    if not isinstance(metadata, Mapping):
        raise BadRow(f"metadata is {_kind(metadata)}, expected an object")
    _text(_chat_text(fields.get("prompt")), "prompt")
    _answers("metadata.ground_truth", metadata.get("ground_truth"))
    documents = [name for name in ("context", "context_id") if metadata.get(name) is not None]
    for name in documents:
        _text(metadata[name], f"metadata.{name}")
    if needs_document and not documents:
        raise BadRow(f"metadata.{_NO_DOCUMENT}")
    return {name: fields[name] for name in OWN_COLUMNS if name in fields}


def titles_of(supporting_facts: Any) -> tuple[str, ...] | None:
    """Titles, given as such, in pairs with a sentence, or as a column, each once; None if it is anything else."""
    titles = fact_titles(supporting_facts)
    return None if titles is None else tuple(dict.fromkeys(titles))


def fact_titles(supporting_facts: Any) -> tuple[str, ...] | None:
    """The same, one for every fact: a paragraph with two supporting sentences stands there twice."""
    facts = supporting_facts.get("title") if isinstance(supporting_facts, dict) else supporting_facts or []
    if not isinstance(facts, list):
        return None
    titles = [fact[0] if isinstance(fact, list) and fact else fact for fact in facts]
    return tuple(titles) if all(isinstance(title, str) for title in titles) else None


# --- pieces of rows --------------------------------------------------------------------------------------------------
def _known(fields: Mapping[str, Any], needs_document: bool) -> dict[str, Any]:
    """The fields that are there and looked at."""
    known = {name: fields[name] for name in COLUMNS if fields.get(name) is not None}
    if needs_document and not any(name in known for name in DOCUMENT_COLUMNS):
        raise BadRow(_NO_DOCUMENT)
    return known


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
        gold = isinstance(entry, dict) and entry.get("is_supporting") is True if marked else not titles
        title, sentences = _title_and_sentences(entry, name)
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


def _member(fields: Mapping[str, Any], outer: str, inner: str) -> Any:
    value = fields.get(outer)
    return value.get(inner) if isinstance(value, dict) else None


def _chat_text(prompt: Any) -> Any:
    """What the user says in chat messages; anything else as it is."""
    if not isinstance(prompt, list):
        return prompt
    texts = [_message_text(message) for message in prompt]
    return "\n\n".join(text for text in texts if text)


def _message_text(message: Any) -> str:
    """The text of a user message, whose content may come in parts; nothing for the other roles."""
    if not isinstance(message, Mapping):
        raise BadRow(f"prompt holds {_kind(message)}, expected chat messages")
    if message.get("role", "user") != "user":
        return ""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    if not isinstance(content, str):
        raise BadRow(f"content of a prompt message is {_kind(content)}, expected text")
    return content


def _answers(name: str, *values: Any) -> tuple[str, ...]:
    """All that is not blank in texts, numbers and lists of them, in order and each once."""
    found = [answer for value in values for answer in (value if isinstance(value, list) else [value])]
    texts = [_answer_text(answer, name) for answer in found]
    kept = tuple(dict.fromkeys(text for text in texts if text.strip()))
    if not kept:
        raise BadRow(f"{name} is missing or empty; use rows that have answers, such as those of a train or dev split")
    return kept


def _answer_text(answer: Any, name: str) -> str:
    if answer is None or answer != answer:  # pandas writes NaN for what is missing
        return ""
    if isinstance(answer, int | float | Decimal) and not isinstance(answer, bool):
        return str(answer)
    if not isinstance(answer, str):
        raise BadRow(f"{name} holds {_kind(answer)}, expected text")
    return answer


def _decoded(value: Any) -> Any:
    """The list or object whose JSON text ``value`` is; itself where it is none."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        return orjson.loads(value)
    except ValueError:
        return value


def _extras(fields: Mapping[str, Any]) -> dict[str, Any]:
    extras = {key: fields[key] for key in _KEPT if key in fields}
    if "id" not in extras and "_id" in fields:  # the original HotpotQA files
        extras = {"id": fields["_id"]} | extras
    if "task" in extras:
        _text(extras["task"], "task")
    return extras


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
