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

Of what is asked the longest documents go first over all lengths, so that no long one is left running alone at the end;
the samples of a question side by side, so that they meet the same prefix cache. More lengths and more samples join an
earlier run; rows of other data, another model or other settings are refused in one line that names what differs.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from ijson import JSONError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from ..agents import agent_class
from ..agents.records import TurnFailed
from ..agents.vocabulary import Vocabulary
from ..config import Config, ConfigError
from ..data.eval_files import CORPUS, Corpus, RawFile, find_raw, sha256_of
from ..data.rows import DataError, json_list
from ..hooks.reader import REPLY_PREFIX, REPLY_TOKENS, task_of
from ..hooks.sample import Record, Sample
from ..hooks.traces import FOLDER, document_of, kept_files, line_of, trace_of
from ..rewards.qa_metrics import METRICS as RULER_METRICS
from ..system.files import append_whole
from ..tasks import Task
from .results import EvalError, Row, Run, cut_half_line, joined_run, read_rows, scores_of, write_run

logger = logging.getLogger(__name__)

_EVERY_MODE = ("task", "task_args", "mem_max_final", "mem_max_question", "mem_prompts", "mem_thinking",
               "eval_temperature", "eval_top_p", "eval_mode", "seed")
_READING = ("agent", "agent_args", "mem_chunk_tokens", "mem_max_memory", "mem_layout")
_SHAPE_ANSWERS = {"recurrent": (*_EVERY_MODE, *_READING), "direct": (*_EVERY_MODE, "engine_max_len"),
                  "rag": _EVERY_MODE}
"""The settings that shape an answer, by EVAL_MODE."""


_Text = Annotated[str, StringConstraints(pattern=r"\S")]
_Name = Annotated[_Text, BeforeValidator(lambda value: str(value) if type(value) in (int, float) else value)]
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
        named = {"task": "ruler" if self.metric else self.task, "metric": self.metric,
                 "ruler_task": self.task if self.metric else "", REPLY_PREFIX: self.answer_prefix,
                 REPLY_TOKENS: self.tokens_to_generate}
        own = {name: value for name, value in self.own.items() if name != REPLY_TOKENS}
        return {**own, "ground_truth": self.answers, **{name: value for name, value in named.items() if value}}


class Entry(NamedTuple):
    question: EvalQuestion
    context: str


def load_questions(data_root: Path, length: str) -> Iterator[Entry]:
    """The entries of ``eval_<length>.json`` in order, each with its document; some tasks read none.

    Raises:
        EvalError: the file is missing, damaged or empty, an id is repeated, or an entry lacks a field.
    """
    path, seen = data_path(data_root, length), dict[str, int]()
    # Opened by the first entry that names documents by number.
    corpus, raw = cache(lambda: Corpus(data_root, path.name)), cache(lambda: RawFile(find_raw(data_root)))
    with path.open("rb") as file:
        try:
            for number, found in enumerate(json_list(file)):
                where = f"{path}: entry {number}"
                fields = {name: value for name, value in found.items() if value is not None}
                own = {"length": length, "id": fields.get("index", fields.get("id", number))}
                question, context = EvalQuestion.model_validate(fields | own), fields.get("context", "")
                if isinstance(context, list):
                    context = raw().context(fields)
                elif not context and fields.get("documents"):
                    context = corpus().context(fields)
                if (first := seen.setdefault(question.id, number)) != number:
                    raise EvalError(f"{path}: entries {first} and {number} both have the index {question.id}")
                yield Entry(question, context)
        except ValidationError as error:
            wrong = error.errors()[0]
            raise EvalError(f"{where} has no usable `{wrong['loc'][0]}`: {wrong['msg']}") from None
        except DataError as error:
            raise EvalError(f"{where}: {error}") from None
        except (JSONError, AttributeError) as error:
            raise EvalError(f"{path}: not a JSON list of entries ({error}); fetch or make it again") from None
    if not seen:
        raise EvalError(f"{path}: expected a non-empty list")


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
    path, corpus = data_path(data_root, length), data_root / CORPUS
    with path.open("rb") as file:
        context = next(json_list(file)).get("context")
    beside = find_raw(data_root) if isinstance(context, list) else corpus
    digest = sha256_of(path)[:16]
    if isinstance(context, str) or not beside.is_file():
        return digest
    return hashlib.sha256(f"{digest} {sha256_of(beside)[:16]}".encode()).hexdigest()[:16]


# --- what is missing ------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """One answer that is to be got."""

    question: EvalQuestion
    context: str
    sample: int


def missing_jobs(
    config: Config, model: Path, output: Path, api: str, served_model: str, weights: str, *, write: bool = True
) -> list[Job]:
    """The answers that ``output`` lacks, longest documents first; ``write``: its ``run.json``.

    Raises:
        EvalError: a file of questions cannot be used, or ``output`` holds rows of something else.
    """
    jobs, counts = list[Job](), dict[str, int]()
    root, mode = Path(config.data_root or "."), config.eval_mode.partition(":")[0]
    reads = mode != "recurrent" or agent_class(config).needs_document
    for length in dict.fromkeys(config.length.split()):
        counts[length] = 0
        done = {(row["_id"], row["sample"]) for row in read_rows(output, length) if row["failure"] is None}
        for question, context in load_questions(root, length):
            counts[length] += 1
            where = f"{root}/eval_{length}.json: the entry with the index {question.id}"
            try:
                task = task_of(config, Sample(metadata=question.metadata))
            except TurnFailed as error:
                raise EvalError(f"{where}: {error}") from None
            if not context and reads and (task.needs_document or mode != "recurrent"):
                raise EvalError(f"{where} has no usable `context`")
            jobs += [Job(question, context, sample) for sample in range(config.eval_samples)
                     if (question.id, sample) not in done]
    if not counts:
        raise ConfigError("LENGTH is empty; name the <n> of the eval_<n>.json to evaluate")
    settings = {name: getattr(config, name) for name in _SHAPE_ANSWERS[mode]}
    if config.mem_prompts:
        settings["mem_prompts"] = Path(config.mem_prompts).read_text(encoding="utf-8")
    run = joined_run(output, Run(
        model=model_hash(model), model_name=str(model.absolute()), weights=weights, mode=config.eval_mode,
        settings=settings | {"eval_api": api, "served_model": served_model}, samples=config.eval_samples,
        data={length: data_hash(root, length) for length in counts}, questions=counts,
    ))
    if write:
        write_run(output, run)
    return sorted(jobs, key=lambda job: (-len(job.context), job.question.length, job.question.id, job.sample))


def model_hash(model: Path) -> str:
    """Of names, sizes and heads of the weight files: it tells checkpoints apart without reading them whole."""
    digest = hashlib.sha256()
    for path in sorted(p for p in model.iterdir() if p.suffix in (".safetensors", ".json", ".bin") and p.is_file()):
        with path.open("rb") as file:
            size = path.stat().st_size
            for position in (0, max(0, size // 2), max(0, size - 2**20)):
                file.seek(position)
                digest.update(file.read(2**20))
        digest.update(f"{path.name} {size}".encode())
    return digest.hexdigest()[:16]


class KeptTrajectories:
    """What an evaluation read and wrote (KEEP_TRAJECTORIES), in ``RESULTS/trajectories``.

    Nothing that goes wrong here ends the evaluation or changes a row. It costs one warning, after which nothing more
    is kept. ``most`` is how many bytes they may take.
    """

    def __init__(self, output: Path, vocabulary: Vocabulary, config: Config, most: int) -> None:
        self._config, self._vocabulary, self._open = config, vocabulary, config.keep_trajectories > 0
        self._folder, self._documents = output / FOLDER, set[tuple[str, str]]()
        for file in kept_files(output):
            cut_half_line(file)
        self._room = most - sum(file.stat().st_size for file in kept_files(output))

    async def write(self, sample: Sample, record: Record, row: Row) -> None:
        """Keep the trajectory that ``row`` is the answer of, before it its document where that is new."""
        if not self._open:
            return
        scores = scores_of(row)
        try:
            document = document_of(self._vocabulary, [record])
            # Long readings take a while to decode, and other answers need this loop meanwhile.
            trace = await asyncio.to_thread(
                trace_of, self._vocabulary, self._config, sample, record,
                id=f"{row['length']}-{row['_id']}-{row['sample']}", length=row["length"],
                question_id=row["_id"], group=row["_id"], sample=row["sample"],
                document=document.id if document else None, prediction=row["pred"],
                scores={row["headline"]: scores[row["headline"]]} | scores, failure_message=row["failure_message"])
            new = document and (row["length"], document.id) not in self._documents
            content = (line_of(document) if document and new else b"") + line_of(trace)
            reason = "500 MB are used up" if len(content) > self._room else ""
            if not reason:
                self._folder.mkdir(parents=True, exist_ok=True)
                with (self._folder / f"{row['length']}.jsonl").open("ab", buffering=0) as file:
                    append_whole(file, content)
                self._room -= len(content)
                self._documents |= {(row["length"], document.id)} if document else set()
        except Exception as error:  # whatever the disk or a tokenizer does: the evaluation goes on
            reason = f"{type(error).__name__}: {error}"
        if reason and self._open:
            logger.warning("no more trajectories are kept: %s", reason)
            self._open = False
