"""One row of a multi-document question answering data set, whatever its shape, as a question with its paragraphs.

===================  ============================================================================================
HotpotQA, 2Wiki      ``question, answer, supporting_facts, context``; the last two as lists of pairs (the original
                     files), as columns (Hugging Face), or as the JSON text of either (some parquet copies)
MuSiQue              ``question, answer, answer_aliases, paragraphs[{title, paragraph_text, is_supporting}]``
SQuAD                ``title, context, question, answers{text}`` (Hugging Face); ``squad_rows`` brings the original
                     files, which are one object of articles, into this shape
===================  ============================================================================================

A worked example, of which all shapes of HotpotQA give the same::

    {"_id": "5a", "question": "Who?", "answer": "Ann", "supporting_facts": [["Ann", 0]],
     "context": [["Ann", ["Ann is.", " She was."]], ["Bob", ["Bob is."]]]}
    -> RawQuestion("5a", "Who?", ("Ann",), (Paragraph("Ann", "Ann is. She was.", True),
                                            Paragraph("Bob", "Bob is.", False)), ("Ann",))

Invariants of a ``RawQuestion``: its texts are not blank and encode as UTF-8, it has an answer, and at least one of
its paragraphs is gold: all of those titled in ``supporting`` or, where nobody marked any, all there are.
A row without an id gets a digest of its question. A broken row raises ``BadRow``; ``Skip`` is a sound row of no use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from .row_schemas import BadRow


class Skip(StrEnum):
    IMPOSSIBLE = "marked as impossible to answer"
    GOLD_ABSENT = "with a supporting document that is not among its paragraphs"


@dataclass(frozen=True, slots=True)
class Paragraph:
    title: str
    text: str
    gold: bool

    @property
    def document(self) -> str:
        return f"{self.title}\n{self.text}"


@dataclass(frozen=True, slots=True)
class RawQuestion:
    id: str
    question: str
    answers: tuple[str, ...]
    paragraphs: tuple[Paragraph, ...]
    supporting: tuple[str, ...]
    """Titles of the gold paragraphs; empty where the data does not mark any."""
    article: str = ""
    """SQuAD: whatever else is in this article is about the same subject."""


def read_row(fields: Mapping[str, Any]) -> RawQuestion | Skip:
    """Raises BadRow."""
    if "paragraphs" in fields:
        return _musique(fields)
    if isinstance(fields.get("answers"), Mapping) and isinstance(fields.get("context"), str):
        return _squad(fields)
    if "context" in fields:
        return _hotpotqa(fields)
    raise BadRow("fits no known data set; expected a row of HotpotQA, 2WikiMultiHopQA, MuSiQue or SQuAD")


def squad_rows(articles: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The questions of an original SQuAD file's ``data``, each with where it stands. Raises BadRow."""
    if not isinstance(articles, list):
        raise BadRow("data is no list of articles, as SQuAD files have it")
    for number, article in enumerate(articles, start=1):
        try:
            for paragraph in article["paragraphs"]:
                for qa in paragraph["qas"]:
                    texts = [] if qa.get("is_impossible", False) else [answer["text"] for answer in qa["answers"]]
                    row = {"id": qa["id"], "question": qa["question"], "is_impossible": qa.get("is_impossible", False)}
                    place = {"title": article["title"], "context": paragraph["context"]}
                    yield f"article {number}", row | place | {"answers": {"text": texts}}
        except (KeyError, TypeError, AttributeError) as error:
            raise BadRow(f"article {number} is not as in SQuAD files ({type(error).__name__}: {error})") from None


def _hotpotqa(fields: Mapping[str, Any]) -> RawQuestion | Skip:
    titles = _titles(_decoded(fields.get("supporting_facts"), "supporting_facts"))
    pairs = _pairs(_decoded(fields.get("context"), "context"), "context", ("title", "sentences"))
    paragraphs = []
    for title, sentences in pairs:
        if not isinstance(title, str) or not _texts(sentences):
            raise BadRow("context holds a paragraph that is not a title with a list of sentences")
        paragraphs.append(Paragraph(title, _joined(sentences), not titles or title in titles))
    return _question(fields, _answers(fields.get("answer")), paragraphs, titles)


def _musique(fields: Mapping[str, Any]) -> RawQuestion | Skip:
    if fields.get("answerable") is False:
        return Skip.IMPOSSIBLE
    if not isinstance(fields["paragraphs"], list) or not all(isinstance(p, Mapping) for p in fields["paragraphs"]):
        raise BadRow("paragraphs is no list of objects")
    paragraphs = [
        Paragraph(_text(p.get("title"), "title"), p.get("paragraph_text") or "", p.get("is_supporting") is True)
        for p in fields["paragraphs"]
    ]
    answers = _answers(fields.get("answer"), *filter(None, fields.get("answer_aliases") or ()))
    supporting = tuple(dict.fromkeys(p.title for p in paragraphs if p.gold))
    if not supporting:
        return Skip.GOLD_ABSENT
    return _question(fields, answers, paragraphs, supporting)


def _squad(fields: Mapping[str, Any]) -> RawQuestion | Skip:
    texts = fields["answers"].get("text")
    if fields.get("is_impossible") is True or texts == []:
        return Skip.IMPOSSIBLE
    title = _text(fields.get("title"), "title")
    paragraph = Paragraph(title, fields["context"], True)
    return _question(fields, _answers(*(texts or ())), [paragraph], (title,), article=title)


def _question(
    fields: Mapping[str, Any], answers: tuple[str, ...], paragraphs: Sequence[Paragraph], supporting: tuple[str, ...],
    article: str = "",
) -> RawQuestion | Skip:
    text = _text(fields.get("question"), "question")
    kept = tuple(paragraph for paragraph in paragraphs if _text_or_blank(paragraph.text).strip())
    if not kept:
        raise BadRow("no paragraph has any text")
    if not set(supporting) <= {paragraph.title for paragraph in kept if paragraph.gold}:
        return Skip.GOLD_ABSENT
    row_id = fields.get("id") if fields.get("id") is not None else fields.get("_id")
    if row_id is None:
        row_id = hashlib.sha256(text.encode()).hexdigest()[:16]
    return RawQuestion(str(row_id), text, answers, kept, supporting, article)


# --- pieces of rows --------------------------------------------------------------------------------------------------
def _decoded(value: Any, name: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        raise BadRow(f"{name} is text, and not JSON") from None


def _pairs(value: Any, name: str, columns: tuple[str, str]) -> list[Sequence[Any]]:
    """Pairs, given as such or as two columns."""
    if isinstance(value, Mapping):
        first, second = (value.get(column) for column in columns)
        if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
            return list(zip(first, second, strict=True))
    elif isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        return value
    raise BadRow(f"{name} is neither pairs nor {' and '.join(columns)} of equal length")


def _titles(supporting_facts: Any) -> tuple[str, ...]:
    if supporting_facts is None:
        return ()
    titles = [title for title, _ in _pairs(supporting_facts, "supporting_facts", ("title", "sent_id"))]
    return tuple(dict.fromkeys(_text(title, "title of a supporting fact") for title in titles))


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _joined(sentences: Sequence[str]) -> str:
    """HotpotQA's sentences bring the blanks between them along, 2Wiki's do not."""
    text = ""
    for sentence in filter(None, sentences):
        apart = not text or text[-1].isspace() or sentence[0].isspace()
        text += sentence if apart else f" {sentence}"
    return text


def _answers(*values: Any) -> tuple[str, ...]:
    if not values or None in values or "" in values:
        raise BadRow("answer is missing; use a split that has answers, such as train or dev")
    return tuple(dict.fromkeys(_text(value, "answer") for value in values))


def _text(value: Any, name: str) -> str:
    if value is None or value == "":
        raise BadRow(f"{name} is missing or empty")
    if not isinstance(value, str) or not value.strip():
        raise BadRow(f"{name} is {'blank' if isinstance(value, str) else type(value).__name__}, expected text")
    return _text_or_blank(value)


def _text_or_blank(value: Any) -> str:
    if not isinstance(value, str):
        raise BadRow(f"a paragraph is {type(value).__name__}, expected text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadRow("a text holds half a Unicode character (a lone surrogate)") from None
    return value
