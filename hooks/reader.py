"""What a rollout reads: a host's sample as its agent and its task see it, in the token ids of one process' tokenizer.

A prompt is a text, which is the question, or a list of chat messages::

    [system]  [user, assistant] ...  user: the question  [assistant: what the reply goes on from]

What the final reply goes on from is the assistant message behind the question, or else ``metadata["reply_prefix"]``,
which evaluation sets for RULER's answer prefixes. Either way the agent gets it as the last ids of its final prompt,
and its task as ``metadata["reply_prefix"]`` of its row, since the reply that is scored does not hold it.

LOSS=sft: the replies are given, by the row's ``metadata["replies"]``, a list of texts, one for each turn; or, without
them, the final one by its task, which knows a ``solution``, and the others by a rule (``kept_sentences``). The
configured agent runs on them by the one loop, so its prompts are those of rollouts. AGENT=memagent on a document of
two sections::

    {"replies": ["Anna has the key.", "Anna has the key; it is red.", "\\boxed{red}"]}
    MEMORY prompt 0 -> reply 0, end | MEMORY prompt 1, which shows reply 0 -> reply 1, end | FINAL -> reply 2, end

Replies are text: a control token spelled in one is taught letter by letter, as in documents.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from ..agents import agent_class, build_agent
from ..agents.documents import DocumentCache
from ..agents.interface import MemoryAgent, Reading
from ..agents.records import FailureKind, Generation, Message, Role, StopReason, Trajectory, TurnFailed, TurnRequest
from ..checkpoints.hf_model import load_vocabulary
from ..config import Config, ConfigError
from ..data.document_store import DocumentStore, MissingDocument, store_folder
from ..tasks import TASKS, Task, TaskRow, load_task
from .host import HostArgs
from .kept_sentences import KeptSentences
from .metrics import find_golds
from .sample import FINISHED, Record, gold_answers

REPLY_PREFIX, REPLY_TOKENS = "reply_prefix", "reply_tokens"
"""In a row's metadata: what its final reply goes on from, and in evaluation how long that may be."""
_DOCUMENT = frozenset({"context", "context_id"})


# --- the row --------------------------------------------------------------------------------------------------------


def _messages(sample: Any) -> list[Message]:
    """The prompt's messages; one of a user where it is a text. Raises TurnFailed."""
    if isinstance(sample.prompt, str):
        return [Message(Role.USER, sample.prompt)]
    try:  # of a parquet file pandas makes an array
        return [Message(Role(message["role"]), _text(message["content"])) for message in sample.prompt]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TurnFailed(FailureKind.BAD_MESSAGES, f"a message needs a text and a role ({error!r}): "
                         f"{', '.join(Role)}") from None


def _text(content: Any) -> str:
    """A message's content; of one in parts, ``[{"type": "text", "text": ...}, ...]``, the texts joined."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def question_of(sample: Any) -> str:
    """The question: the prompt, or its last user message; empty where there is none. Raises TurnFailed."""
    return next((m.text.strip() for m in reversed(_messages(sample)) if m.role is Role.USER), "")


def messages_before(sample: Any) -> tuple[Message, ...]:
    """The messages before the question, as they are.

    Raises:
        TurnFailed: the prompt is no conversation that ends with a question, perhaps with the beginning of a reply.
    """
    messages = _messages(sample)
    if messages[-1].role is Role.ASSISTANT:
        messages.pop()
    if not messages or messages[-1].role is not Role.USER or Role.SYSTEM in [message.role for message in messages[1:]]:
        raise TurnFailed(FailureKind.BAD_MESSAGES, "the last message must be the user's, only the first a system's")
    return tuple(messages[:-1])


def reply_form(sample: Any) -> tuple[str, int]:
    """What the sample's final reply goes on from, and its most tokens; 0 where the agent's own budget holds."""
    metadata, last = sample.metadata or {}, _messages(sample)[-1]
    behind = last.text if last.role is Role.ASSISTANT else ""
    return behind or metadata.get(REPLY_PREFIX) or "", metadata.get(REPLY_TOKENS) or 0


def row_of(sample: Any) -> TaskRow:
    metadata = without_document(sample.metadata or {})
    if prefix := reply_form(sample)[0]:
        metadata[REPLY_PREFIX] = prefix
    return TaskRow(question_of(sample), tuple(gold_answers(sample)), metadata)


def without_document(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A row's metadata except its document."""
    return {name: value for name, value in metadata.items() if name not in _DOCUMENT}


def task_name(config: Config, sample: Any) -> str:
    """The row's own task, else TASK's first."""
    return str((sample.metadata or {}).get("task") or config.tasks[0])


def task_of(config: Config, sample: Any) -> Task:
    """Raises ConfigError if TASK's own task is unknown, TurnFailed if the row's is."""
    name = task_name(config, sample)
    try:
        return task_by_name(name, config)
    except ConfigError as error:
        if name == config.tasks[0]:
            raise
        raise TurnFailed(FailureKind.UNKNOWN_TASK, f"the row's own task: {error}") from error


def task_by_name(name: str, config: Config) -> Task:
    """The task that a row names: one of the pack's, or one that TASK lists, by the name of its class too.

    Rows come from anywhere, so none of them gets code imported that the user has not named.

    Raises:
        ConfigError: it is neither.
    """
    listed = {own.rpartition(":")[2]: own for own in config.tasks} | {own: own for own in config.tasks}
    if name not in listed and name not in TASKS:
        allowed = ", ".join([*TASKS, *config.tasks])
        raise ConfigError(f"TASK={name!r}: allowed: {allowed}; name yours in TASK, after a comma")
    found = listed.get(name, name)
    return load_task(found, config.task_args if found == config.tasks[0] else "")


# --- its document ---------------------------------------------------------------------------------------------------


async def context_of(host: HostArgs, sample: Any) -> str:
    """The document of a host's ``sample``, inline or by id; empty where the agent reads none, or the task has none.

    Raises:
        TurnFailed: the row has no document, or its task is not there.
    """
    task = task_of(host.config, sample)
    if not agent_class(host.config).needs_document:
        return ""
    metadata = sample.metadata or {}
    context = metadata.get("context")
    if context is None and metadata.get("context_id") is not None:
        context = await stored_text(host, metadata["context_id"])
    if isinstance(context, str) and context.strip():
        return context
    if task.needs_document:
        raise TurnFailed(FailureKind.NO_CONTEXT, "metadata has neither a context text nor a context_id")
    return ""


async def stored_text(host: HostArgs, document_id: str) -> str:
    """The document of this id, from the store beside the training file or an evaluation file. Raises TurnFailed."""
    reasons = []
    for path in (host.prompt_data, *host.config.eval_files):
        try:
            return await asyncio.to_thread(_store(store_folder(path)).get, document_id)
        except MissingDocument as error:
            reasons.append(error)
    raise TurnFailed(FailureKind.MISSING_DOCUMENT, str(reasons[0]))


_store = lru_cache(maxsize=8)(DocumentStore)


# --- in token ids ---------------------------------------------------------------------------------------------------


class Reader:
    """A tokenizer with the agent and the document cache that belong to it."""

    def __init__(self, checkpoint: str, config: Config, chat_template_kwargs: str) -> None:
        self.config = config
        self.vocabulary = load_vocabulary(checkpoint, config.trust_remote_code)
        self.agent: MemoryAgent = build_agent(config, self.vocabulary, json.loads(chat_template_kwargs))
        self.documents = DocumentCache(self.vocabulary.encode_text)

    async def reading(self, sample: Any, context: str, *, evaluation: bool = False) -> Reading:
        """The question of ``sample`` about the document ``context``. Raises TurnFailed."""
        question, most = self.vocabulary.encode_text(question_of(sample)), self.config.mem_max_question
        if not question:
            raise TurnFailed(FailureKind.NO_QUESTION, "the prompt is empty")
        if len(question) > most:
            raise TurnFailed(FailureKind.LONG_QUESTION, f"question of {len(question)} tokens, MEM_MAX_QUESTION={most}")
        prefix, budget = reply_form(sample)
        before = messages_before(sample) if self.agent.shows_messages else ()
        chunks = None if evaluation else self.config.mem_max_chunks
        ids = await self.documents.get(context)
        document = self.agent.split(ids, self.config.mem_chunk_tokens, chunks)
        return Reading(question, document, self.vocabulary.encode_text(prefix), budget if evaluation else 0, before)

    def record(self, trajectory: Trajectory, sample: Any, *, evaluation: bool, task: str) -> Record:
        """The trajectory as data, with what its turns earned and the texts of its memories, if they are kept."""
        decode, golds, keep = self.vocabulary.decode, gold_answers(sample), self.config.keep_trajectories > 0
        turn_rewards = self.agent.turn_rewards
        return Record.of_trajectory(
            trajectory,
            memories=tuple(find_golds(trajectory.memories, decode, golds, keep=keep)),
            rewards=turn_rewards(trajectory, golds, sample.metadata or {}) if trajectory.outcome in FINISHED else (),
            weights=self.agent.turn_weights(trajectory, golds),
            evaluation=evaluation, task=task,
        )

    async def given(self, loop: Callable[[Any], Awaitable[Trajectory]], sample: Any) -> Trajectory:
        """LOSS=sft: the trajectory of ``loop``, which takes a sampler, with the replies that the row gives.

        Raises:
            TurnFailed: the row gives no reply, too few or too many, or one that its turn has no room for.
            ConfigError: the tokenizer has no end of a turn.
        """
        metadata = sample.metadata or {}
        replies = metadata.get("replies")
        if replies is None:
            task = task_of(self.config, sample)
            row = row_of(sample)
            if not (solution := task.solution(row).removeprefix(reply_form(sample)[0])):
                raise TurnFailed(FailureKind.NO_REPLY, "the row has neither metadata.replies nor an answer")
            rule = KeptSentences(self.agent, self.vocabulary, gold_answers(sample), metadata, solution,
                                 task.keeper(row))
            return await loop(partial(self._by_rule, rule))
        if not isinstance(replies, list) or not all(isinstance(reply, str) for reply in replies) or not any(replies):
            raise TurnFailed(FailureKind.NO_REPLY, "metadata.replies must be a list of texts, one for each turn")
        uneven = TurnFailed(FailureKind.NO_REPLY, f"metadata.replies has {len(replies)} texts, and AGENT="
                            f"{self.config.agent} another number of turns")

        async def reply(requests: Sequence[TurnRequest], number: int) -> list[Generation]:
            texts = replies[number : number + len(requests)]
            if len(texts) < len(requests):
                raise uneven
            return [self._given(request, text) for request, text in zip(requests, texts, strict=True)]

        trajectory = await loop(reply)
        if trajectory.failure is None and len(trajectory.turns) < len(replies):
            raise uneven
        return trajectory

    async def _by_rule(self, rule: KeptSentences, requests: Sequence[TurnRequest], number: int) -> list[Generation]:
        return [self._given(request, rule.reply(request)) for request in requests]

    def _given(self, request: TurnRequest, text: str) -> Generation:
        end = self.vocabulary.turn_end_id
        if end is None:
            raise ConfigError(f"HF_CKPT={self.config.hf_ckpt!r}: its tokenizer_config.json has no eos_token")
        ids = [*self.vocabulary.encode_text(text), end]
        if len(ids) > request.max_new_tokens:
            raise TurnFailed(FailureKind.LONG_REPLY, f"a {request.kind} reply has {len(ids)} tokens, "
                             f"MEM_MAX_{request.kind.upper()} allows {request.max_new_tokens}")
        return Generation(ids, [0.0] * len(ids), StopReason.STOP)


_reader_lock = threading.Lock()
_reader_once = lru_cache(maxsize=8)(Reader)


def reader_for(checkpoint: str, config: Config, chat_template_kwargs: str) -> Reader:
    """The one reader of these settings; ``chat_template_kwargs`` is JSON."""
    with _reader_lock:
        return _reader_once(checkpoint, config, chat_template_kwargs)
