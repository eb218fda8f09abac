"""Reads ``eval_<length>.json``, one entry at a time, and keeps the documents off the heap.

A file is a JSON list of entries with ``input`` (the question), ``answers`` and ``index`` (or ``id``; the entry's
number where neither is there), and the document either inline or by numbers of lines of ``corpus.jsonl`` beside it::

    {"context": "Document 1:\nAnna\nhas the red key.", "input": "What has Anna?", "answers": ["a key"], "index": 0}
    {"documents": [7, 2], "input": "What has Anna?", "answers": ["a key"], "index": 0}

The second entry's document is ``Document 1:``, line 7, a blank line, ``Document 2:``, line 2 (``data.eval_files``
writes such files). MemAgent's published files of more than 10,000 documents have such numbers as ``context``, of
HotpotQA's raw file (``data.published``). RULER files carry ``task`` and ``metric`` too; ``<length>`` is then
``niah_single_1_8192``, say.
Any entry may have what ``reading`` tells of: ``answer_prefix``, ``example``, ``tokens_to_generate``.

Entries of tasks without a document (``mem-agent prepare-math --eval gsm8k`` writes ``eval_gsm8k.json``) may have the
messages that AGENT=chat shows before the question, what every reply goes on from, and fields that their task reads::

    {"messages": [{"role": "system", "content": "..."}], "input": "Reach 24.", "answers": ["6 * 4"], "index": 0,
     "task": "countdown", "metadata": {"numbers": [6, 4, 1], "target": 24}, "reply_prefix": "Let me try: "}

Invariants: at most one document is in memory while a file is read, however many gigabytes it has; every error names
the file and the entry.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from ..agents.records import Message, Role
from ..data.corpus_file import CORPUS, CorpusFile, CorpusFileError, open_corpus, read_context
from ..data.published import PublishedError, RawFile, find_raw
from ..data.sources import Broken, NotJson, json_list
from ..hooks.task_row import REPLY_PREFIX, REPLY_TOKENS
from ..rewards.ruler import METRICS as RULER_METRICS
from ..system.atomic_file import nameless
from ..system.errors import MemAgentError

T = TypeVar("T")
_MOST_TOKENS = 2**20
"""Of a final reply; tasks ask for a few hundred."""


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


def load_questions(data_root: Path, length: str, raw_file: Path | None = None) -> Iterator[Entry]:
    """The entries of ``eval_<length>.json`` in order; ``raw_file`` has the documents of a published index-only file.

    Raises:
        EvalError: the file is missing, damaged or empty, an id is repeated, or an entry lacks a field. A missing
            ``context`` is none: some tasks read no document.
    """
    path = data_path(data_root, length)
    texts = _Texts(
        cache(lambda: open_corpus(data_root, path.name)), cache(lambda: RawFile(find_raw(data_root, raw_file)))
    )
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


def data_path(data_root: Path, length: str) -> Path:
    path = data_root / f"eval_{length}.json"
    if not path.is_file():
        raise EvalError(f"{path}: no such file; see prepare-eval-data.sh, or set DATA_ROOT and LENGTH")
    return path


def data_hash(data_root: Path, length: str, raw_file: Path | None = None) -> str:
    """Of the file, and of the corpus or raw file where its documents are there."""
    path = data_path(data_root, length)
    digest = _sha256(path)
    with path.open("rb") as file:
        first = next(json_list(file))
    if "context" not in first and (data_root / CORPUS).is_file():
        beside = data_root / CORPUS
    elif isinstance(first.get("context"), list):
        beside = find_raw(data_root, raw_file)
    else:
        return digest
    return hashlib.sha256(f"{digest} {_sha256(beside)}".encode()).hexdigest()[:16]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _Texts:
    """Where documents named by number are; opened by the first entry that asks."""

    corpus: Callable[[], CorpusFile]
    raw: Callable[[], RawFile]


def _entry(where: str, length: str, number: str, raw: Any, texts: _Texts) -> Entry:
    def needed(name: str, kind: type) -> Any:
        if not isinstance(raw, dict) or not isinstance(raw.get(name), kind) or not raw[name]:
            raise EvalError(f"{where} has no usable `{name}`")
        return raw[name]

    def optional(name: str, default: T) -> T:
        value = raw.get(name)
        if value is not None and type(value) is not type(default):
            raise EvalError(f"{where} has no usable `{name}`")
        return default if value is None else value

    if isinstance(raw, Broken):
        raise EvalError(f"{where}: {raw.problem}; fetch or make the file again")
    text, answers = needed("input", str), tuple(map(_answer, needed("answers", list)))
    if not text.strip():
        raise EvalError(f"{where} has no usable `input`: it is blank")
    if None in answers:
        raise EvalError(f"{where} has no usable `answers`: each is a text that is not blank, or a number")
    if "context" not in raw and "documents" in raw:
        if not all(type(document) is int for document in needed("documents", list)):
            raise EvalError(f"{where} has no usable `documents`: they are numbers of lines of {CORPUS}")
        try:
            context = read_context(raw, texts.corpus)
        except CorpusFileError as error:
            raise EvalError(f"{where}: {error}") from None
    elif isinstance(raw.get("context"), list):
        try:
            context = texts.raw().context(raw)
        except PublishedError as error:
            raise EvalError(f"{where}: {error}") from None
    else:
        context = needed("context", str) if "context" in raw else ""
    metric = optional("metric", "")
    if metric and metric not in RULER_METRICS:
        raise EvalError(f"{where} has the metric {metric!r}; known are {', '.join(RULER_METRICS)}")
    name = next((raw[key] for key in ("index", "id") if raw.get(key) is not None), number)
    if type(name) not in (str, int):
        raise EvalError(f"{where} has no usable `index`: it is a text or a whole number")
    prefix, example, begun = (optional(name, "") for name in ("answer_prefix", "example", "reply_prefix"))
    tokens = optional("tokens_to_generate", 0)
    if not 0 <= tokens <= _MOST_TOKENS:
        raise EvalError(f"{where} has no usable `tokens_to_generate`: it is at most {_MOST_TOKENS}")
    task = optional("task", "")
    said: list[Any] = optional("messages", [])
    messages = tuple(_message(where, message) for message in said)
    own: dict[str, Any] = optional("metadata", {})
    for field_name in ("task", REPLY_PREFIX):
        if not isinstance(own.get(field_name), str | None):
            raise EvalError(f"{where} has no usable `metadata`: its `{field_name}` is no text")
    question = EvalQuestion(
        length, str(name), text, tuple(filter(None, answers)), task, metric, prefix, example, tokens, messages, begun,
        own,
    )
    return Entry(question, context)


def _answer(given: Any) -> str | None:
    """None where nobody could give it: ``null`` would be the text "None", ``true`` "True", a list that of a list."""
    is_one = isinstance(given, str | int | float) and not isinstance(given, bool)
    return str(given) if is_one and str(given).strip() else None


def _message(where: str, raw: Any) -> Message:
    role, text = (raw.get("role"), raw.get("content")) if isinstance(raw, dict) else (None, None)
    if role not in tuple(Role) or not isinstance(text, str) or not text:
        raise EvalError(f"{where} has no usable `messages`: each has a role ({', '.join(Role)}) and a text as content")
    return Message(Role(role), text)


class Contexts:
    """Documents in a file without a name."""

    def __init__(self, folder: Path) -> None:
        self._file = nameless(folder)
        self._end = 0

    def put(self, text: str) -> Place:
        content = text.encode("utf-8", "surrogatepass")
        place = Place(self._end, len(content))
        while content:
            content = content[self._file.write(content) :]
        self._end += place.bytes
        return place

    def get(self, place: Place) -> str:
        """The document at ``place``; any thread may ask."""
        parts, done = [], 0
        while done < place.bytes:  # one call returns at most 2 GiB
            parts.append(os.pread(self._file.fileno(), place.bytes - done, place.offset + done))
            assert parts[-1], f"a document of {place.bytes} bytes ends after {done}"
            done += len(parts[-1])
        return b"".join(parts).decode("utf-8", "surrogatepass")

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a document lies in ``Contexts``."""

    offset: int
    bytes: int
