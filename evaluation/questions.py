"""Reads ``eval_<length>.json``, one entry at a time.

A file is a JSON list of entries with ``input`` (the question), ``answers`` and ``index`` (or ``id``; the entry's
number where neither is there), and the document either inline or by numbers of lines of ``corpus.jsonl`` beside it::

    {"context": "Document 1:\nAnna\nhas the red key.", "input": "What has Anna?", "answers": ["a key"], "index": 0}
    {"documents": [7, 2], "input": "What has Anna?", "answers": ["a key"], "index": 0}

The second entry's document is ``Document 1:``, line 7, a blank line, ``Document 2:``, line 2 (``data.synthesize``
writes such files). MemAgent's published files of more than 10,000 documents have such numbers as ``context``, of
HotpotQA's raw file beside them (``data.numbered``). RULER files carry ``task`` and ``metric`` too; ``<length>`` is
then ``niah_single_1_8192``, say. RULER has the model go on from an ``answer_prefix``, shows a solved ``example``
before the document, and ends the reply after ``tokens_to_generate``; any entry may have these (``as_asked``).

Entries of tasks without a document (``mem-agent prepare-math --eval gsm8k`` writes ``eval_gsm8k.json``) may have the
messages that AGENT=chat shows before the question, what every reply goes on from, and fields that their task reads::

    {"messages": [{"role": "system", "content": "..."}], "input": "Reach 24.", "answers": ["6 * 4"], "index": 0,
     "task": "countdown", "metadata": {"numbers": [6, 4, 1], "target": 24}, "reply_prefix": "Let me try: "}

Every error names the file and the entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from ..agents.records import Message, Role
from ..data.numbered import CORPUS, Corpus, RawFile, find_raw
from ..data.rows import DataError, NotJson, json_list
from ..hooks.task_row import REPLY_PREFIX, REPLY_TOKENS
from ..rewards.qa_metrics import METRICS as RULER_METRICS
from ..system.errors import MemAgentError
from ..tasks import Task


class EvalError(MemAgentError):
    """Evaluation cannot go on: bad data, an endpoint that does not answer, or results of another run in the way."""


@dataclass(frozen=True, slots=True)
class EvalQuestion:
    """An entry without its document."""

    length: str
    id: str
    text: str
    answers: tuple[str, ...]
    task: str = ""
    metric: str = ""
    """RULER's own score of its task; empty for question answering."""
    answer_prefix: str = ""
    """What the final reply goes on from; it stands behind the prompt, and is no part of the reply."""
    example: str = ""
    """A solved question, which stands before the document."""
    tokens_to_generate: int = 0
    """Of the final reply; 0: MEM_MAX_FINAL."""
    messages: tuple[Message, ...] = ()
    """Before the question, for agents that show them."""
    reply_prefix: str = ""
    """What the reply goes on from however it is read; an assistant message behind the question."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """Further fields that the task reads; how long a reply may be is said by ``tokens_to_generate`` alone."""

    @property
    def prompt(self) -> str | list[dict[str, str]]:
        """As rows of training data have it: the question, or a conversation."""
        if not (self.messages or self.reply_prefix):
            return self.text
        behind = [Message(Role.ASSISTANT, self.reply_prefix)] if self.reply_prefix else []
        messages = [*self.messages, Message(Role.USER, self.text), *behind]
        return [{"role": message.role.value, "content": message.text} for message in messages]

    @property
    def metadata(self) -> dict[str, Any]:
        """The row as tasks and the ``generate`` hook see it; a file that names a metric is RULER's."""
        ruler = {"task": "ruler", "metric": self.metric, "ruler_task": self.task} if self.metric else {}
        own = {"task": self.task} if self.task and not self.metric else {}
        asked = {REPLY_PREFIX: self.answer_prefix, REPLY_TOKENS: self.tokens_to_generate}
        used = {name: value for name, value in asked.items() if value}
        further = {name: value for name, value in self.own.items() if name != REPLY_TOKENS}
        return {**further, "ground_truth": list(self.answers), **ruler, **own, **used}


@dataclass(frozen=True, slots=True)
class Entry:
    question: EvalQuestion
    context: str


_Text = Annotated[str, StringConstraints(pattern=r"\S")]


class _Message(BaseModel):
    role: Literal["system", "user", "assistant"]
    content: _Text


class _Row(BaseModel):
    """An entry as it stands in the file; ``null`` is like a field that is not there."""

    model_config = ConfigDict(strict=True)

    input: _Text
    answers: Annotated[list[_Text | int | float], Field(min_length=1)]
    context: str | list[Any] = ""
    documents: list[int] = []
    index: str | int | None = None
    id: str | int | None = None
    task: str = ""
    metric: str = ""
    answer_prefix: str = ""
    example: str = ""
    tokens_to_generate: Annotated[int, Field(ge=0)] = 0
    messages: list[_Message] = []
    reply_prefix: str = ""
    metadata: dict[str, Any] = {}


def load_questions(data_root: Path, length: str) -> Iterator[Entry]:
    """The entries of ``eval_<length>.json`` in order.

    Raises:
        EvalError: the file is missing, damaged or empty, an id is repeated, or an entry lacks a field. A missing
            ``context`` is allowed: some tasks read no document.
    """
    path = data_path(data_root, length)
    texts = _Documents(data_root, path.name)
    seen: dict[str, int] = {}
    with path.open("rb") as file:
        try:
            for number, raw in enumerate(json_list(file)):
                entry = _entry(f"{path}: entry {number}", length, str(number), raw, texts)
                first = seen.setdefault(entry.question.id, number)
                if first != number:
                    raise EvalError(f"{path}: entries {first} and {number} both have the index {entry.question.id}")
                yield entry
        except NotJson as error:
            raise EvalError(f"{path}: {error}; fetch or make it again") from None
    if not seen:
        raise EvalError(f"{path}: expected a non-empty list")


def as_asked(question: EvalQuestion, task: Task, *, thinks: bool) -> EvalQuestion:
    """The question with the parts of its row that are used.

    RULER's three (prefix, example, limit) are used where the task scores the reply whole; a reply that names its
    answer in a form needs its beginning and its length. ``thinks``: the model's replies begin with thinking, which
    neither prefix nor limit allows for, so MEM_MAX_FINAL holds.
    """
    if not task.reads_whole:
        return replace(question, answer_prefix="", example="", tokens_to_generate=0)
    return replace(question, answer_prefix="", tokens_to_generate=0) if thinks else question


def data_path(data_root: Path, length: str) -> Path:
    path = data_root / f"eval_{length}.json"
    if not path.is_file():
        raise EvalError(f"{path}: no such file; see prepare-eval-data.sh, or set DATA_ROOT and LENGTH")
    return path


def data_hash(data_root: Path, length: str) -> str:
    """Of the file, and of the corpus or raw file where its documents are there."""
    path = data_path(data_root, length)
    digest = _sha256(path)
    with path.open("rb") as file:
        first = next(json_list(file))
    if "context" not in first and (data_root / CORPUS).is_file():
        beside = data_root / CORPUS
    elif isinstance(first.get("context"), list):
        beside = find_raw(data_root)
    else:
        return digest
    return hashlib.sha256(f"{digest} {_sha256(beside)}".encode()).hexdigest()[:16]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


@dataclass
class _Documents:
    """Those that entries name by number; the file that has them is opened by the first entry that does."""

    data_root: Path
    asking: str

    @cached_property
    def raw(self) -> RawFile:
        return RawFile(find_raw(self.data_root))

    @cached_property
    def corpus(self) -> Corpus:
        return Corpus(self.data_root, self.asking)

    def of(self, raw: Mapping[str, Any], row: _Row) -> str:
        if "context" not in raw and row.documents:
            return self.corpus.context(raw)
        return self.raw.context(raw) if isinstance(row.context, list) else row.context


def _entry(where: str, length: str, number: str, raw: Any, documents: _Documents) -> Entry:
    try:
        row = _Row.model_validate({name: value for name, value in raw.items() if value is not None})
        context = documents.of(raw, row)
    except ValidationError as error:
        first = error.errors()[0]
        raise EvalError(f"{where} has no usable `{first['loc'][0]}`: {first['msg']}") from None
    except AttributeError:
        raise EvalError(f"{where} is not an object with `input` and `answers`") from None
    except DataError as error:
        raise EvalError(f"{where}: {error}") from None
    if row.metric and row.metric not in RULER_METRICS:
        raise EvalError(f"{where} has the metric {row.metric!r}; known are {', '.join(RULER_METRICS)}")
    name = next((given for given in (row.index, row.id) if given is not None), number)
    question = EvalQuestion(
        length, str(name), row.input, tuple(map(str, row.answers)), row.task, row.metric, row.answer_prefix,
        row.example, row.tokens_to_generate, tuple(Message(Role(one.role), one.content) for one in row.messages),
        row.reply_prefix, row.metadata,
    )
    return Entry(question, context)
