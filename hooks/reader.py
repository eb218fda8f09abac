"""What a rollout reads with, built once per process: tokenizer, agent, documents."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..agents import agent_class, build_agent
from ..agents.chunking import Chunks, split_chunks
from ..agents.documents import DocumentCache
from ..agents.interface import MemoryAgent
from ..agents.records import FailureKind, Generation, TurnFailed
from ..checkpoints.hf_model import load_vocabulary, token_count, with_local_models
from ..config import Config
from ..data.document_store import DocumentStore, MissingDocument, store_folder
from .host import HostArgs
from .task_row import task_of

logger = logging.getLogger(__name__)

_reader_lock = threading.Lock()


class Reader:
    """A tokenizer with the agent and the document cache that belong to it."""

    def __init__(self, checkpoint: str, config: Config, chat_template_kwargs: Mapping[str, Any]) -> None:
        self.vocabulary = load_vocabulary(checkpoint, config.trust_remote_code)
        self.agent: MemoryAgent = build_agent(with_local_models(config), self.vocabulary, chat_template_kwargs)
        self.documents = DocumentCache(self.vocabulary.encode_text)
        self._tokens = token_count(Path(checkpoint))

    def of_model(self, generation: Generation, most: int) -> Generation:
        """``generation``, if the model could sample it within ``most`` tokens (0: unknown): a trainer takes neither
        other ids nor more of them, and would find that out anew whenever it continues. Raises TurnFailed.
        """
        largest = max(generation.token_ids, default=0)
        if self._tokens and largest >= self._tokens:
            told = f"token {largest} is none of the model's {self._tokens}; the engine serves another model"
            raise TurnFailed(FailureKind.BAD_RESPONSE, told)
        if 0 < most < len(generation.token_ids):
            told = f"a reply of {len(generation.token_ids)} tokens, where the model has room for {most}"
            raise TurnFailed(FailureKind.BAD_RESPONSE, told)
        return generation

    async def read(self, context: str, config: Config, trajectory: int | None, *, evaluation: bool = False) -> Chunks:
        """The chunks of a document; none where there is no document. Raises TurnFailed."""
        if not context:
            return Chunks((), 0)
        limit = "EVAL_MAX_CHUNKS" if evaluation else "MEM_MAX_CHUNKS"
        most = config.eval_max_chunks or None if evaluation else config.mem_max_chunks
        chunks = split_chunks(await self.documents.get(context), config.mem_chunk_tokens, most)
        if not chunks.chunks:
            raise TurnFailed(FailureKind.NO_CONTEXT, "the document has no tokens")
        if chunks.dropped:
            logger.warning(
                "trajectory %s: %d of %d document tokens dropped from its centre (%s=%s)",
                trajectory, chunks.dropped, chunks.tokens, limit, most,
            )
        return chunks


@lru_cache(maxsize=8)
def _reader_once(checkpoint: str, config: Config, kwargs: str) -> Reader:
    return Reader(checkpoint, config, json.loads(kwargs))


def reader_for(checkpoint: str, config: Config, chat_template_kwargs: str) -> Reader:
    """The one reader of these settings; ``chat_template_kwargs`` is JSON."""
    with _reader_lock:
        return _reader_once(checkpoint, config, chat_template_kwargs)


@lru_cache(maxsize=8)
def _store(path: str) -> DocumentStore:
    return DocumentStore(path)


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
    """The document of this id. Raises TurnFailed where no store has it."""
    return await asyncio.to_thread(_stored, _stores(host), document_id)


def _stores(host: HostArgs) -> list[str]:
    """Where documents by id may lie: MEM_DOC_STORE, or beside the training file and each evaluation file."""
    if host.config.mem_doc_store:
        return [host.config.mem_doc_store]
    return [str(store_folder(path)) for path in (host.prompt_data, *host.config.eval_files)]


def _stored(stores: list[str], document_id: str) -> str:
    """The document from the first store that has it; the first store's reason if none has."""
    reasons = []
    for path in stores:
        try:
            return _store(path).get(document_id)
        except MissingDocument as error:
            reasons.append(error)
    raise TurnFailed(FailureKind.MISSING_DOCUMENT, str(reasons[0])) from reasons[0]
