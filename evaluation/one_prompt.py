"""The baselines that ask once: the whole document in one prompt, or the passages that a retriever finds.

``direct``  a document that does not fit the engine loses its centre, and ``dropped_tokens`` says how much
``rag``     EVAL_TOP_K passages in the order in which they stand in the document, joined by blank lines

Both are an agent of one turn, run by the training loop, so answers, counts and failures mean the same in every mode::

    [chat head, instructions] document ids [</document> <problem>] question ids [</problem>, tail] -> answer
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from ..agents.chunking import split_chunks
from ..agents.documents import DocumentCache
from ..agents.interface import Reading
from ..agents.loop import run_trajectory
from ..agents.prompts import PROBLEM, SECTION, chat_frame, compile_template
from ..agents.records import Failure, FailureKind, Generation, Outcome, Trajectory, TurnFailed, TurnKind, TurnRequest
from ..agents.vocabulary import Vocabulary
from ..config import Config
from ..hooks.record import write_trajectory
from ..hooks.sample import Sample
from ..rollout_client import client_for, endpoint_from_args
from .questions import Contexts, Place, Question
from .retrieval import Retriever, split_passages

logger = logging.getLogger(__name__)

UNLIMITED = 2**40
"""Tokens of a server that does not say how many it takes; it refuses what is too long by itself."""
_PROMPT = (
    "Solve the problem with what the document says and write the final answer inside \\boxed{}.\n\n"
    "<document>\n{section}\n</document>\n\n<problem>\n{problem}\n</problem>\n\nAnswer:\n"
)


@dataclass(frozen=True, slots=True)
class State:
    reading: Reading
    answer: str | None = None


class OnePrompt:
    """The agent (see ``agents.interface``): its reading has one chunk, all that fits the prompt."""

    slow = False

    def __init__(self, vocabulary: Vocabulary, config: Config) -> None:
        frame = chat_frame(vocabulary.tokenizer, config.mem_thinking, {})
        self._vocabulary = vocabulary
        self._template = compile_template(_PROMPT, frame, vocabulary)
        self._reply = config.mem_max_final

    def room(self, limit: int, question_ids: Sequence[int]) -> int:
        """Document tokens that fit beside the question and the reply."""
        return limit - self._reply - len(self._template.fill({PROBLEM: question_ids, SECTION: ()}))

    def start(self, reading: Reading) -> State:
        assert len(reading.document.chunks) == 1, "the whole reading is one prompt"
        return State(reading)

    def requests(self, state: State) -> tuple[TurnRequest, ...]:
        if state.answer is not None:
            return ()
        (document,) = state.reading.document.chunks
        prompt = self._template.fill({PROBLEM: state.reading.question_ids, SECTION: document})
        return (TurnRequest(TurnKind.FINAL, prompt, self._reply),)

    def advance(self, state: State, generations: Sequence[Generation]) -> State:
        (reply,) = generations
        opened = self._template.thinking_open
        return replace(state, answer=self._vocabulary.answer_text(reply.token_ids, thinking_open=opened))

    def memory(self, state: State) -> tuple[int, ...]:
        return ()

    def answer(self, state: State) -> str:
        return state.answer or ""

    def counts(self, state: State) -> dict[str, float]:
        document = state.reading.document
        return {"chunks": 1, "document_tokens": document.tokens, "dropped_tokens": document.dropped}

    def state_steps(self, trajectory: Trajectory) -> tuple[()]:
        return ()


class OnePromptMode:
    """Answers a question by one prompt; with a retriever the prompt has its passages, else the whole document."""

    def __init__(
        self, args: SimpleNamespace, vocabulary: Vocabulary, contexts: Contexts, retriever: Retriever | None
    ) -> None:
        self._args = args
        self._config: Config = args.mem_agent
        self._vocabulary = vocabulary
        self._agent = OnePrompt(vocabulary, self._config)
        self._contexts = contexts
        self._retriever = retriever
        self._documents = DocumentCache(vocabulary.encode_text)
        # One thread, so that the samples of a question find what the first of them retrieved.
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="retrieve")
        self._retrieved = lru_cache(maxsize=1024)(self._retrieve)

    async def __call__(self, question: Question, place: Place, sampling: dict[str, Any]) -> Sample:
        sample = Sample(prompt=question.text, metadata={"ground_truth": list(question.answers)})
        try:
            text, counts = await self._text(question, place)
            trajectory = await self._run(question, text, sampling)
            trajectory = replace(trajectory, counts=trajectory.counts | counts)
        except TurnFailed as error:
            trajectory = _failed(error.kind, str(error))
        except Exception as error:  # as in training: one bad question must not end the run
            logger.exception("question %s/%s failed", question.length, question.id)
            trajectory = _failed(FailureKind.INTERNAL, f"{type(error).__name__}: {error}")
        return write_trajectory(self._args, sample, trajectory)

    async def _text(self, question: Question, place: Place) -> tuple[str, dict[str, float]]:
        """What the prompt shows, with counts of its own."""
        loop = asyncio.get_running_loop()
        if self._retriever is None:
            return await loop.run_in_executor(self._pool, self._contexts.get, place), {}
        return await loop.run_in_executor(self._pool, self._retrieved, question.text, place)

    def _retrieve(self, question: str, place: Place) -> tuple[str, dict[str, float]]:
        assert self._retriever is not None
        passages = split_passages(self._contexts.get(place))
        chosen = sorted(self._retriever.rank(question, passages, self._config.eval_top_k)) if passages else []
        return "\n\n".join(passages[i] for i in chosen), {"passages": len(passages), "retrieved": len(chosen)}

    async def _run(self, question: Question, text: str, sampling: dict[str, Any]) -> Trajectory:
        endpoint = endpoint_from_args(self._args, self._config)
        client = client_for(endpoint, self._config)
        question_ids = self._vocabulary.encode_text(question.text.strip())
        limit = endpoint.max_tokens or UNLIMITED
        room = self._agent.room(limit, question_ids)
        if room < 1:
            raise TurnFailed(FailureKind.LONG_PROMPT, f"no room for a document in {limit} tokens")
        document = split_chunks(await self._documents.get(text), room, 1)
        if not document.chunks:
            raise TurnFailed(FailureKind.NO_CONTEXT, "the document has no tokens")
        sampling = sampling | {"stop_token_ids": list(self._vocabulary.eos_ids)}

        async def sample_turn(request: TurnRequest, number: int) -> Generation:
            key = f"document-{question.id}"
            return await client.generate(request.prompt_ids, request.max_new_tokens, sampling, key)

        return await run_trajectory(self._agent, Reading(question_ids, document), sample_turn)


def _failed(kind: FailureKind, message: str) -> Trajectory:
    return Trajectory((), Outcome.FAILED, failure=Failure(kind, message))
