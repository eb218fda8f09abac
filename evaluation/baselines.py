"""The baselines that ask once: the whole document in one prompt, or the passages that a retriever finds.

    EVAL_MODE=direct                     a document that does not fit loses its centre (``dropped_tokens``)
    EVAL_MODE=rag:bm25:5                 the 5 best passages by BM25, in the order of the document
    EVAL_MODE=rag:embedding=MODEL:10     the 10 best by the cosine of a sentence-transformers model's vectors

Passages are what ``Document <i>:`` lines begin, or ``WORDS`` words where the text has no such lines. Both modes are an
agent of one turn on the training loop, so answers, counts and failures mean the same in every mode::

    [chat head, instructions] document ids [</document> <problem>] question ids [</problem>, tail] prefix ids -> answer
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..agents import agent_class
from ..agents.documents import Chunks, DocumentCache, split_chunks
from ..agents.interface import Reading
from ..agents.one_prompt import BASELINES
from ..agents.prompts import chat_frame, load_prompts
from ..agents.recall import WordCounter, bm25, encoder
from ..agents.records import FailureKind, Outcome, Trajectory, TurnFailed
from ..config import EVAL_MODE, Config
from ..hooks.host import sampling_of
from ..hooks.sample import Record, Sample, write_record
from ..rollout import run_trajectory
from ..rollout_client import How, client_for
from .endpoint import EvalEndpoint
from .questions import EvalQuestion

WORDS = 150
_UNLIMITED = 2**40
"""Tokens of a server that does not say how many it takes; it refuses what is too long by itself."""
_HEADING = re.compile(r"^Document \d+:", re.MULTILINE)
_WORDS = re.compile(rf"(?:\S+\s*){{1,{WORDS}}}")


def scored(retriever: str, question: str, passages: Sequence[str], trusted: bool) -> NDArray[np.floating]:
    """A score for each passage: by ``bm25`` (Lucene's, without English stop words), or by ``embedding=MODEL`` the
    cosine of vectors, of a passage what the model's window holds. Raises ConfigError where there is no such model."""
    kind, _, model = retriever.partition("=")
    if kind == "bm25":
        count = WordCounter()
        return np.array(bm25([*map(count, passages)], count(question)))
    vectors = encoder(model, "EVAL_MODE: embedding", trust_remote_code=trusted).encode([question, *passages])
    return vectors[1:] @ vectors[0]


def split_passages(document: str) -> list[str]:
    """The document's passages in order; only blanks at their ends are lost."""
    starts = [match.start() for match in _HEADING.finditer(document)]
    if not starts:
        return [match.group().strip() for match in _WORDS.finditer(document)]
    parts = [document[a:b].strip() for a, b in pairwise([0, *starts, len(document)])]
    return [part for part in parts if part]


def one_prompt(config: Config, endpoint: EvalEndpoint) -> Callable[[EvalQuestion, str, dict[str, Any]], Any]:
    """What answers a question by one prompt, called as ``rollout.generate`` is for ``recurrent``: with a question, a
    document and sampling parameters; it gives a Sample."""
    vocabulary, limit = endpoint.vocabulary, endpoint.max_tokens or _UNLIMITED
    mode, found_by = config.eval_mode.partition(":")[0], EVAL_MODE.match(config.eval_mode)
    prompts = load_prompts(config.mem_layout, config.mem_prompts, agent_class(config).own_prompts)
    agent = BASELINES[mode](config, vocabulary, prompts, chat_frame(vocabulary.tokenizer, config.mem_thinking, {}))
    # Retrieved one at a time, so that the samples of a question find what the first of them retrieved.
    documents, retrieving = DocumentCache(vocabulary.encode_text), asyncio.Lock()

    @lru_cache(maxsize=1024)
    def retrieve(question: str, context: str) -> tuple[str, dict[str, float]]:
        if mode == "direct" or found_by is None:
            return context, {}
        retriever, most, passages = found_by["retriever"], found_by["most"], split_passages(context)
        scores = scored(retriever or "bm25", question, passages, config.trust_remote_code) if passages else ()
        chosen = sorted(np.argsort(-np.array(scores), kind="stable")[: int(most or 10)].tolist())
        return "\n\n".join(passages[i] for i in chosen), {"passages": len(passages), "retrieved": len(chosen)}

    async def read(question: EvalQuestion, context: str, sampling: dict[str, Any]) -> Trajectory:
        async with retrieving:
            text, counts = await asyncio.to_thread(retrieve, question.text, context)
        asked = Reading(vocabulary.encode_text(question.text.strip()), Chunks((), 0),
                        vocabulary.encode_text(question.answer_prefix), question.tokens_to_generate)
        room = agent.room(limit, asked)
        if room < 1:
            raise TurnFailed(FailureKind.LONG_PROMPT, f"no room for a document in {limit} tokens")
        document = split_chunks(await documents.get(question.example + text), room, 1)
        if not document.chunks:
            raise TurnFailed(FailureKind.NO_CONTEXT, "the document has no tokens")
        how = How(sampling=sampling_of(sampling, vocabulary.eos_ids))
        client = client_for(endpoint, config.mem_concurrency)
        with client.trajectory(f"document-{question.id}", config.eval_samples) as session:
            trajectory = await run_trajectory(
                agent, replace(asked, document=document), lambda requests, n: session.sample(requests, n, how))
        return replace(trajectory, counts=trajectory.counts | counts)

    async def ask(question: EvalQuestion, context: str, sampling: dict[str, Any]) -> Sample:
        try:
            trajectory = await read(question, context, sampling)
        except TurnFailed as error:
            trajectory = Trajectory((), Outcome.FAILED, failure=error)
        sample = Sample(prompt=question.text, metadata=question.metadata)
        return write_record(sample, Record.of_trajectory(trajectory, evaluation=True), trajectory.answer)

    return ask
