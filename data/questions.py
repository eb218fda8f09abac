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
=========  ===========================================================================================================

A worked example, of which all shapes of HotpotQA give the same::

    {"_id": "5a", "question": "Who?", "answer": "Ann", "supporting_facts": [["Ann", 0]],
     "context": [["Ann", ["Ann is.", " She was."]], ["Bob", ["Bob is."]]]}
    -> question "Who?", answers ("Ann",), supporting ("Ann",), paragraphs (gold first, then another)
       (Paragraph("Ann", ("Ann is.", " She was."), True), Paragraph("Bob", ("Bob is.",), False))
       document "Document 1:\\nAnn\\nAnn is. She was.\\n\\nDocument 2:\\nBob\\nBob is."
    -> {"prompt": "Who?", "label": "Ann", "metadata": {"ground_truth": ["Ann"], "context": "Document 1:\\n...", ...}}

A question and its answers are not blank, nor is its document if it has one; answers keep the order of the data
without duplicates. A row that cannot meet this raises ``BadRow``.

Raw files are read whole into a pool of every question and all their paragraphs as documents, each once. Several
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

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from .document_store import document_id
from .rows import BadRow, BadRows, DataError, listed, literal, open_file

INLINE_CHARS = 20_000
"""Documents up to so many characters stay in their training row."""
_KEPT = ("id", "level", "type", "supporting_facts", "task")


class Impossible(BadRow):
    """A sound row whose question has no answer, on purpose."""


class Paragraph(NamedTuple):
    title: str | None
    sentences: tuple[str, ...]
    gold: bool = True
    """Whether the answer is made from it; True of all where nobody marked any."""

    @property
    def document(self) -> str:
        """Title and sentences as the data has them."""
        text = "".join(self.sentences)
        return text if self.title is None else f"{self.title}\n{text}"


class Question(NamedTuple):
    question: str
    answers: tuple[str, ...]
    context: str = ""
    """The document, where the data has it as one text."""
    paragraphs: tuple[Paragraph, ...] = ()
    supporting: tuple[str, ...] = ()
    """Titles of the gold paragraphs; empty where the data does not mark any."""
    article: str = ""
    """SQuAD: whatever else is in this article is about the same subject."""
    extras: Mapping[str, Any] = {}
    """Fields that go into the training row's metadata unchanged."""

    @property
    def id(self) -> str:
        """The row's own or, without one, a digest of its question."""
        given = self.extras.get("id")
        return hashlib.sha256(self.question.encode()).hexdigest()[:16] if given is None else str(given)


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
    texts = [list(filter(None, paragraph.sentences)) for paragraph in paragraphs]
    joints = [_are_apart(*joint) for sentences in texts for joint in pairwise(sentences)]
    if 2 * sum(joints) < len(joints):
        texts = [[*sentences[:1], *(after if _are_apart(before, after) else f" {after}"
                                    for before, after in pairwise(sentences))] for sentences in texts]
    return [one._replace(sentences=tuple(text)).document for one, text in zip(paragraphs, texts, strict=True)]


def _are_apart(before: str, after: str) -> bool:
    return before[-1].isspace() or after[0].isspace()


# --- training rows ---------------------------------------------------------------------------------------------------
def row_of(question: Question) -> tuple[dict[str, Any], str | None]:
    """The training row of a question, and its document if that is not inline."""
    document = question.context or assemble(spaced_documents(question.paragraphs))
    metadata = {"ground_truth": question.answers} | ({"context": document} if document else {}) | dict(question.extras)
    if question.supporting and "supporting_facts" not in metadata:
        metadata["supporting"] = question.supporting
    row = {"prompt": question.question, "label": question.answers[0], "metadata": metadata}
    if len(document) <= INLINE_CHARS:
        return row, None
    del metadata["context"]
    metadata["context_id"] = document_id(document)
    return row, document


# --- data sets -------------------------------------------------------------------------------------------------------
def read_question(fields: Mapping[str, Any]) -> Question:
    """The question of a row of any data set. Raises BadRow."""
    if not any(name in fields for name in ("question", "answer", "reward_model")):
        raise BadRow("fits no known schema; expected {question, answer or answers, context}, rows of HotpotQA, "
                     "2WikiMultiHopQA, MuSiQue or SQuAD, or MemAgent's {prompt, context, reward_model}")
    fields = {name: value for name, value in _plain(fields).items() if value is not None}
    extras = {name: fields[name] for name in _KEPT if name in fields}
    if "id" not in extras and "_id" in fields:  # the original HotpotQA files
        extras = {"id": fields["_id"]} | extras
    fields |= {name: listed(name, value) for name in ("answer", "answers")
               if isinstance(value := fields.get(name), str)}
    answers: Any = fields.get("answers")
    is_squad = isinstance(answers, dict)
    texts = answers.get("text") if is_squad else answers
    if fields.get("is_impossible") is True or fields.get("answerable") is False or (is_squad and texts == []):
        raise Impossible("marked as impossible to answer")
    golds = _answers("answer", fields.get("answer"), texts, fields.get("answer_aliases"))
    found = Question(_text(fields.get("question"), "question"), golds, extras=extras)
    given = fields.get("paragraphs", fields.get("context"))
    if "supporting_facts" in extras:
        extras["supporting_facts"], given = literal(extras["supporting_facts"]), literal(given)
    if given is None:
        return found
    if not isinstance(given, str):
        paragraphs, supporting = _paragraphs(given, fact_titles(extras.get("supporting_facts")) or ())
        return found._replace(paragraphs=paragraphs, supporting=supporting)
    found, title = found._replace(context=_text(given, "context")), str(fields.get("title") or "")
    if not is_squad or not title:
        return found
    return found._replace(paragraphs=(Paragraph(title, (given,)),), supporting=(title,), article=title)


def _plain(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of MemAgent's files, or of FlashRAG's copies (as ReMemR1's process_test.py reads them), in the columns of
    the data set itself."""
    if "reward_model" in fields:
        asked = _chat_text(fields.get("prompt")) or _mapping(fields.get("extra_info")).get("question")
        return {**fields, "question": asked, "answers": _mapping(fields["reward_model"]).get("ground_truth")}
    if "golden_answers" not in fields:
        return fields
    inner = _mapping(fields.get("metadata"))
    context = inner.get("context")
    if isinstance(context, Mapping) and "sentences" not in context:
        context = {"title": context.get("title"), "sentences": context.get("content")}
    kept = {name: inner.get(name) for name in ("level", "type", "supporting_facts")}
    return {**fields, **kept, "context": context or fields.get("context"), "answers": fields["golden_answers"]}


def fact_titles(supporting_facts: Any) -> tuple[str, ...] | None:
    """The title of every fact, given as such, in pairs with a sentence, or as a column; None of anything else.

    A paragraph with two supporting sentences is named twice.
    """
    facts = supporting_facts.get("title") if isinstance(supporting_facts, dict) else supporting_facts or []
    if not isinstance(facts, list):
        return None
    titles = [fact[0] if isinstance(fact, list) and fact else fact for fact in facts]
    return tuple(titles) if all(isinstance(title, str) for title in titles) else None


def _paragraphs(value: Any, titles: tuple[str, ...]) -> tuple[tuple[Paragraph, ...], tuple[str, ...]]:
    """Paragraphs of any shape, and the titles of the gold ones where ``titles`` or the paragraphs mark them."""
    try:
        entries = list(zip(value["title"], value["sentences"], strict=True)) if isinstance(value, dict) else value
        found = tuple(_paragraph(entry, titles) for entry in entries)
    except (KeyError, TypeError, ValueError):
        raise BadRow("context (or paragraphs) is neither a text nor a list of texts or paragraphs, each a title with "
                     "a text or a list of sentences") from None
    if not any(paragraph.document.strip() for paragraph in found):
        raise BadRow("context is blank")
    if any(_mapping(entry).get("is_supporting") is not None for entry in entries):
        titles = tuple(p.title for p in found if p.gold and p.title is not None)
    return found, tuple(dict.fromkeys(titles))


def _paragraph(entry: Any, titles: tuple[str, ...]) -> Paragraph:
    """Raises ValueError or TypeError."""
    title = mark = None
    match entry:
        case str(text):
            pass
        case [title, text]:
            pass
        case {"text": text} | {"paragraph_text": text} | {"sentences": text}:
            title, mark = entry.get("title"), entry.get("is_supporting")
        case _:
            raise ValueError
    sentences = tuple(text) if isinstance(text, list) else (text,)
    "".join(sentences)  # raises TypeError where one is no text
    return Paragraph(title, sentences, mark is True if mark is not None else not titles or title in titles)


# --- fields ----------------------------------------------------------------------------------------------------------
def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _chat_text(prompt: Any) -> Any:
    """What the user says in chat messages; anything else as it is."""
    if not isinstance(prompt, list):
        return prompt
    said = [message.get("content") for message in map(_mapping, prompt) if message.get("role", "user") == "user"]
    return "\n\n".join(text for text in said if isinstance(text, str) and text)


def _answers(name: str, *values: Any) -> tuple[str, ...]:
    """All that is not blank in texts, numbers and lists of them, in order and each once."""
    found: dict[str, None] = {}
    for answer in (each for value in values for each in (value if isinstance(value, list) else [value])):
        if isinstance(answer, dict | list | bool):
            raise BadRow(f"{name} holds {type(answer).__name__}, expected text")
        if answer is not None and answer == answer and str(answer).strip():  # pandas writes NaN for what is missing
            found[str(answer)] = None
    if not found:
        raise BadRow(f"{name} is missing or empty; use rows that have answers, such as those of a train or dev split")
    return tuple(found)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadRow(f"{name} is missing, blank or no text")
    return value


# --- raw files -------------------------------------------------------------------------------------------------------
class PoolQuestion(NamedTuple):
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


class Corpora(NamedTuple):
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
    articles: dict[str, dict[int, None]] = {}
    for path, row in ((each, row) for each in paths for row in open_file(each)):
        try:
            question = read_question(row.fields)
            if question.id in questions:
                raise BadRow(f"its id {question.id} is that of a row before; remove one")
            found = pool_question(question, numbers, as_published)
        except Impossible as reason:
            skipped[str(reason)] += 1
        except BadRow as error:
            bad.add(f"{path}, {row.where}: {error}")
        else:
            questions[found.id] = found
            articles.setdefault(found.article, {}).update(dict.fromkeys(found.paragraphs if found.article else ()))
    bad.tell_rest()
    if bad.count:
        skipped["bad rows"] = bad.count
    if not questions:
        raise DataError(f"{', '.join(map(str, paths))}: no question that can be used among {skipped.total()} rows")
    return Corpora(tuple(numbers), tuple(
        each._replace(paragraphs=tuple(dict.fromkeys([*each.paragraphs, *articles[each.article]])))
        for each in questions.values()
    ), skipped)


def pool_question(question: Question, numbers: dict[str, int], as_published: bool) -> PoolQuestion:
    """Adds its documents to ``numbers``. Raises BadRow, or Impossible where a gold paragraph is not there."""
    kept = [paragraph for paragraph in question.paragraphs if any(map(str.strip, paragraph.sentences))]
    facts = fact_titles(question.extras.get("supporting_facts"))
    if not kept or facts is None:
        raise BadRow("expected a row of HotpotQA, MuSiQue or SQuAD: paragraphs with text, and supporting_facts that "
                     "are titles, pairs of title and sentence, or two columns")
    titles = {paragraph.title for paragraph in kept if paragraph.gold}
    if not titles or not titles.issuperset(question.supporting):
        raise Impossible("with a supporting document that is not among its paragraphs")
    paragraphs = question.paragraphs if as_published else kept
    texts = [each.document for each in paragraphs] if as_published else spaced_documents(paragraphs)
    own = [numbers.setdefault(text, len(numbers)) for text in texts]
    gold = dict.fromkeys(number for number, paragraph in zip(own, paragraphs, strict=True) if paragraph.gold)
    first = {paragraph.title: number for number, paragraph in zip(own[::-1], paragraphs[::-1], strict=True)}
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
