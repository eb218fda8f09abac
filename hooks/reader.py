"""What a rollout reads with, built once per process: tokenizer, agent, documents."""

from __future__ import annotations

import asyncio
import json
import threading
from functools import lru_cache
from typing import Any

from ..agents import agent_class, build_agent
from ..agents.documents import Chunks, DocumentCache, split_chunks
from ..agents.interface import MemoryAgent, Reading
from ..agents.records import FailureKind, Outcome, Trajectory, TurnFailed
from ..checkpoints.hf_model import load_vocabulary
from ..config import Config
from ..data.document_store import DocumentStore, MissingDocument, store_folder
from .host import HostArgs
from .metrics import find_golds
from .sample import Record, gold_answers
from .task_row import messages_before, question_of, reply_form, task_of

_reader_lock = threading.Lock()


class Reader:
    """A tokenizer with the agent and the document cache that belong to it."""

    def __init__(self, checkpoint: str, config: Config, chat_template_kwargs: str) -> None:
        self.config = config
        self.vocabulary = load_vocabulary(checkpoint, config.trust_remote_code)
        self.agent: MemoryAgent = build_agent(config, self.vocabulary, json.loads(chat_template_kwargs))
        self.documents = DocumentCache(self.vocabulary.encode_text)

    async def reading(self, sample: Any, context: str, *, evaluation: bool = False) -> Reading:
        """The question of ``sample`` about the document ``context``, in token ids. Raises TurnFailed."""
        question, most = self.vocabulary.encode_text(question_of(sample)), self.config.mem_max_question
        if not question:
            raise TurnFailed(FailureKind.NO_QUESTION, "the prompt is empty")
        if len(question) > most:
            raise TurnFailed(FailureKind.LONG_QUESTION, f"question of {len(question)} tokens, MEM_MAX_QUESTION={most}")
        prefix, budget = reply_form(sample)
        before = messages_before(sample) if self.agent.shows_messages else ()
        document = await self.chunks(context, None if evaluation else self.config.mem_max_chunks)
        prefix_ids = self.vocabulary.encode_text(prefix)
        return Reading(question, document, prefix_ids, budget if evaluation else 0, before)

    async def chunks(self, context: str, most: int | None = None) -> Chunks:
        """The chunks of a document, at most ``most`` of them; none where there is no document. Raises TurnFailed."""
        if not context:
            return Chunks((), 0)
        chunks = split_chunks(await self.documents.get(context), self.config.mem_chunk_tokens, most)
        if not chunks.chunks:
            raise TurnFailed(FailureKind.NO_CONTEXT, "the document has no tokens")
        return chunks

    def record(self, trajectory: Trajectory, sample: Any, *, evaluation: bool, task: str) -> Record:
        """The trajectory as data, with what its turns earned and the texts of its memories, if they are kept."""
        decode, golds, keep = self.vocabulary.decode, gold_answers(sample), self.config.keep_trajectories > 0
        finished = trajectory.outcome in (Outcome.COMPLETED, Outcome.TRUNCATED)
        return Record.of_trajectory(
            trajectory,
            memories=tuple(find_golds(trajectory.memories, decode, golds, keep=keep)),
            rewards=self.agent.turn_rewards(trajectory, golds, sample.metadata or {}) if finished else (),
            weights=self.agent.turn_weights(trajectory, golds),
            recalled=[decode(turn.recalled) for turn in trajectory.turns] if keep else (),
            evaluation=evaluation, task=task,
        )


_reader_once = lru_cache(maxsize=8)(Reader)


def reader_for(checkpoint: str, config: Config, chat_template_kwargs: str) -> Reader:
    """The one reader of these settings; ``chat_template_kwargs`` is JSON."""
    with _reader_lock:
        return _reader_once(checkpoint, config, chat_template_kwargs)


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
