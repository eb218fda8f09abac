"""The baselines that ask once: the whole document in one prompt, or the passages that a retriever finds.

``direct``  a document that does not fit the engine loses its centre, and ``dropped_tokens`` says how much
``rag``     EVAL_TOP_K passages in the order in which they stand in the document, joined by blank lines

Both are an agent of one turn, run by the training loop, so answers, counts and failures mean the same in every mode;
``MEM_PROMPTS`` replaces their wording under the mode's name::

    [chat head, instructions] document ids [</document> <problem>] question ids [</problem>, tail] prefix ids -> answer

A row's example stands before its document, or before the passages; its answer prefix stands behind the chat's tail,
where the assistant's turn begins (``reading``).
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from ..agents import BASELINES, check_agent
from ..agents.chunking import Chunks, split_chunks
from ..agents.documents import DocumentCache
from ..agents.interface import Reading
from ..agents.loop import run_trajectory
from ..agents.prompts import chat_frame
from ..agents.records import FailureKind, Generation, Trajectory, TurnFailed, TurnRequest
from ..agents.vocabulary import Vocabulary
from ..client.rollout_client import client_for
from ..config import Config
from ..hooks.host import HostArgs
from ..hooks.record import Record, failed, write_record
from ..hooks.sample import Sample
from .questions import EvalQuestion
from .retrieval import Retriever, split_passages

logger = logging.getLogger(__name__)

UNLIMITED = 2**40
"""Tokens of a server that does not say how many it takes; it refuses what is too long by itself."""


class OnePromptMode:
    """Answers a question by one prompt; with a retriever the prompt has its passages, else the whole document."""

    def __init__(
        self, args: SimpleNamespace, vocabulary: Vocabulary, retriever: Retriever | None
    ) -> None:
        self._args = args
        self._config: Config = args.mem_agent
        self._vocabulary = vocabulary
        frame = chat_frame(vocabulary.tokenizer, self._config.mem_thinking, {})
        agent = BASELINES[self._config.eval_mode]
        self._agent = agent.from_config(self._config, vocabulary, check_agent(self._config), frame)
        self._retriever = retriever
        self._documents = DocumentCache(vocabulary.encode_text)
        # One thread, so that the samples of a question find what the first of them retrieved.
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="retrieve")
        self._retrieved = lru_cache(maxsize=1024)(self._retrieve)

    async def __call__(self, question: EvalQuestion, context: str, sampling: dict[str, Any]) -> Sample:
        sample = Sample(prompt=question.text, metadata=question.metadata)
        try:
            text, counts = await self._text(question, context)
            trajectory = await self._run(question, text, sampling)
            trajectory = replace(trajectory, counts=trajectory.counts | counts)
        except TurnFailed as error:
            trajectory = failed(error.kind, str(error))
        except Exception as error:  # as in training: one bad question must not end the run
            logger.exception("question %s/%s failed", question.length, question.id)
            trajectory = failed(FailureKind.INTERNAL, f"{type(error).__name__}: {error}")
        return write_record(sample, Record.of_trajectory(trajectory, evaluation=True), trajectory)

    async def _text(self, question: EvalQuestion, context: str) -> tuple[str, dict[str, float]]:
        """What the prompt shows, with counts of its own."""
        if self._retriever is None:
            return question.example + context, {}
        retrieve = asyncio.get_running_loop().run_in_executor(self._pool, self._retrieved, question.text, context)
        text, counts = await retrieve
        return question.example + text, counts

    def _retrieve(self, question: str, context: str) -> tuple[str, dict[str, float]]:
        assert self._retriever is not None
        passages = split_passages(context)
        chosen = sorted(self._retriever.rank(question, passages, self._config.eval_top_k)) if passages else []
        return "\n\n".join(passages[i] for i in chosen), {"passages": len(passages), "retrieved": len(chosen)}

    async def _run(self, question: EvalQuestion, text: str, sampling: dict[str, Any]) -> Trajectory:
        endpoint = HostArgs.of(self._args).router
        client = client_for(endpoint, self._config)
        asked = Reading(
            self._vocabulary.encode_text(question.text.strip()), Chunks((), 0),
            self._vocabulary.encode_text(question.answer_prefix), question.tokens_to_generate,
        )
        limit = endpoint.max_tokens or UNLIMITED
        room = self._agent.room(limit, asked)
        if room < 1:
            raise TurnFailed(FailureKind.LONG_PROMPT, f"no room for a document in {limit} tokens")
        document = split_chunks(await self._documents.get(text), room, 1)
        if not document.chunks:
            raise TurnFailed(FailureKind.NO_CONTEXT, "the document has no tokens")
        sampling = sampling | {"stop_token_ids": list(self._vocabulary.eos_ids)}

        async def sample_turn(request: TurnRequest, number: int) -> Generation:
            key = f"document-{question.id}"
            return await client.generate(request.prompt_ids, request.max_new_tokens, sampling, key)

        return await run_trajectory(self._agent, replace(asked, document=document), sample_turn)

