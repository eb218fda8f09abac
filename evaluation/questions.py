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
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from ..data.numbered import CORPUS, Corpus, RawFile, find_raw
from ..data.rows import DataError, NotJson, json_list
from ..hooks.reader import REPLY_PREFIX, REPLY_TOKENS
from ..rewards.qa_metrics import METRICS as RULER_METRICS
from ..system.errors import MemAgentError
from ..tasks import Task


class EvalError(MemAgentError):
    """Evaluation cannot go on: bad data, an endpoint that does not answer, or results of another run in the way."""


def _as_text(value: Any) -> Any:
    return str(value) if type(value) in (int, float) else value


_Text = Annotated[str, StringConstraints(pattern=r"\S")]
_Name = Annotated[_Text, BeforeValidator(_as_text)]
"""A number is taken as its text."""


class _Message(BaseModel):
    role: Literal["system", "user", "assistant"]
    text: _Text = Field(alias="content")


class EvalQuestion(BaseModel):
    """An entry without its document."""

    model_config = ConfigDict(strict=True, frozen=True, populate_by_name=True)

    length: str
    id: _Name
    text: _Text = Field(alias="input")
    answers: Annotated[list[_Name], Field(min_length=1)]
    task: str = ""
    metric: Literal["", *RULER_METRICS] = ""  # type: ignore[valid-type]
    """RULER's own score of its task; empty for question answering."""
    answer_prefix: str = ""
    """What the final reply goes on from; it stands behind the prompt, and is no part of the reply."""
    example: str = ""
    """A solved question, which stands before the document."""
    tokens_to_generate: Annotated[int, Field(ge=0)] = 0
    """Of the final reply; 0: MEM_MAX_FINAL."""
    messages: list[_Message] = []
    """Before the question, for agents that show them."""
    reply_prefix: str = ""
    """What the reply goes on from however it is read; an assistant message behind the question."""
    own: dict[str, Any] = Field({}, alias="metadata")
    """Further fields that the task reads; how long a reply may be is said by ``tokens_to_generate`` alone."""

    @property
    def prompt(self) -> str | list[dict[str, str]]:
        """As rows of training data have it: the question, or a conversation."""
        if not (self.messages or self.reply_prefix):
            return self.text
        behind = [{"role": "assistant", "content": self.reply_prefix}] if self.reply_prefix else []
        before = [one.model_dump(by_alias=True) for one in self.messages]
        return [*before, {"role": "user", "content": self.text}, *behind]

    @property
    def metadata(self) -> dict[str, Any]:
        """The row's metadata as tasks and the ``generate`` hook see them; a file that names a metric is RULER's."""
        ruler = {"task": "ruler", "metric": self.metric, "ruler_task": self.task}
        task = ruler if self.metric else {"task": self.task} if self.task else {}
        asked = {REPLY_PREFIX: self.answer_prefix, REPLY_TOKENS: self.tokens_to_generate}
        used = {name: value for name, value in asked.items() if value}
        further = {name: value for name, value in self.own.items() if name != REPLY_TOKENS}
        return {**further, "ground_truth": self.answers, **task, **used}


class Entry(NamedTuple):
    question: EvalQuestion
    context: str


def load_questions(data_root: Path, length: str) -> Iterator[Entry]:
    """The entries of ``eval_<length>.json`` in order, each with its document; some tasks read none.

    Raises:
        EvalError: the file is missing, damaged or empty, an id is repeated, or an entry lacks a field.
    """
    path = data_path(data_root, length)
    texts = _Documents(data_root, path.name)
    seen: dict[str, int] = {}
    with path.open("rb") as file:
        try:
            for number, raw in enumerate(json_list(file)):
                entry = _entry(f"{path}: entry {number}", length, number, raw, texts)
                first = seen.setdefault(entry.question.id, number)
                if first != number:
                    raise EvalError(f"{path}: entries {first} and {number} both have the index {entry.question.id}")
                yield entry
        except NotJson as error:
            raise EvalError(f"{path}: {error}; fetch or make it again") from None
    if not seen:
        raise EvalError(f"{path}: expected a non-empty list")


def _entry(where: str, length: str, number: int, raw: Any, documents: _Documents) -> Entry:
    try:
        fields = {name: value for name, value in raw.items() if value is not None}
        name = fields.get("index", fields.get("id", number))
        question = EvalQuestion.model_validate(fields | {"length": length, "id": name})
        return Entry(question, documents.of(fields))
    except ValidationError as error:
        first = error.errors()[0]
        raise EvalError(f"{where} has no usable `{first['loc'][0]}`: {first['msg']}") from None
    except AttributeError:
        raise EvalError(f"{where} is not an object with `input` and `answers`") from None
    except DataError as error:
        raise EvalError(f"{where}: {error}") from None


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

    def of(self, entry: Mapping[str, Any]) -> str:
        context = entry.get("context", "")
        if "context" not in entry and entry.get("documents"):
            return self.corpus.context(entry)
        if isinstance(context, list):
            return self.raw.context(entry)
        if not isinstance(context, str):
            raise DataError("its `context` is neither a text nor a list of numbers")
        return context


def as_asked(question: EvalQuestion, task: Task, *, thinks: bool) -> EvalQuestion:
    """The question with the parts of its row that are used.

    RULER's three (prefix, example, limit) are used where the task scores the reply whole; a reply that names its
    answer in a form needs its beginning and its length. ``thinks``: the model's replies begin with thinking, which
    neither prefix nor limit allows for, so MEM_MAX_FINAL holds.
    """
    dropped: dict[str, Any] = {"answer_prefix": "", "tokens_to_generate": 0} if thinks or not task.reads_whole else {}
    return question.model_copy(update=dropped if task.reads_whole else dropped | {"example": ""})


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
