"""Reads a document for a question and tells every step: what `mem-agent ask` shows and `mem-agent serve` streams.

The agent, its prompts, budgets and loop are those of training and evaluation; the settings are the model's own
(``checkpoints.hf_model.config_for_model``), sampling is that of evaluation. ::

    config, _ = config_for_model(model)
    reader = AskingReader(config, model, "http://127.0.0.1:8000")
    async with aclosing(reader.read("Who has the key?", text, limits=Limits(seconds=60), seed=1)) as steps:
        async for step in steps:
            ...
    await close_clients()                                       # rollout_client's, once, at the end

Invariants:
- the last step is ``Answered`` or ``Failed``; only bugs raise;
- closing the iterator, or cancelling who iterates, ends the engine's requests at once;
- a document is read whole: one that is longer than the limit fails before anything is asked, nothing is cut out of it;
- equal document, question, sampling and seed ask what evaluation would ask.

An agent that reads no document (``AGENT=chat``, ``single``) is shown it before the question, if both fit.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..agents.documents import Chunks
from ..agents.interface import Reading
from ..agents.records import (
    FailureKind,
    Generation,
    Outcome,
    StopReason,
    Trajectory,
    Turn,
    TurnFailed,
    TurnKind,
    TurnRequest,
)
from ..config import Config
from ..hooks.host import evaluation_sampling, sampling_of
from ..hooks.reader import Reader, reader_for
from ..hooks.sample import Sample
from ..hooks.task_row import messages_before, question_of, reply_form, task_by_name
from ..rollout import run_trajectory
from ..rollout_client import Dialect, Endpoint, How, client_for
from .sections import sections_of
from .sources import sources
from .steps import ABORTED, TOO_LONG, Answered, Delta, Failed, Limits, Section, Started, Step, TurnDone
from .token_stream import TokenStream

Question = str | Sequence[Mapping[str, Any]]
"""A text, or chat messages whose last user message is the question."""
Tell = Callable[[Step], None]
NO_LIMITS = Limits()
_ANEW = "</think>"
"""What a stream tells where it cannot take back what it told: readers of such replies look behind the last one."""


class AskingReader:
    """One model behind one server; made once, it reads any number of documents side by side."""

    def __init__(self, config: Config, model: Path, server: str | Endpoint) -> None:
        """``server`` is the address of a router, or an endpoint such as ``evaluation.connect`` gives.

        Raises:
            ConfigError: the model's settings or its tokenizer cannot be used.
        """
        self.endpoint = Endpoint(Dialect.VLLM, server, config.engine_max_len) if isinstance(server, str) else server
        self.config = config.replace(hf_ckpt=str(model))
        self._reader: Reader = reader_for(str(model), self.config, "{}")
        self._task = task_by_name(self.config.tasks[0], self.config)

    def is_long(self, text: str) -> bool:
        """Whether it has more tokens than a question may have."""
        return len(self._reader.vocabulary.encode_text(text)) > self.config.mem_max_question

    async def read(
        self,
        question: Question,
        document: str,
        *,
        limits: Limits = NO_LIMITS,
        seed: int | None = None,
        sampling: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Step, None]:
        """Every step of one reading; ``sampling`` replaces evaluation's ``temperature`` and ``top_p``."""
        steps: asyncio.Queue[Step | None] = asyncio.Queue()
        work = asyncio.ensure_future(self._steps(question, document, limits, seed, sampling or {}, steps.put_nowait))
        work.add_done_callback(lambda _: steps.put_nowait(None))
        try:
            while (step := await steps.get()) is not None:
                yield step
            await work
        finally:
            work.cancel()
            await asyncio.wait({work})

    async def _steps(
        self, question: Question, document: str, limits: Limits, seed: int | None, sampling: Mapping[str, Any],
        tell: Tell,
    ) -> None:
        try:
            async with asyncio.timeout(limits.seconds or None):
                await self._answer(question, document, limits, seed, sampling, tell)
        except TurnFailed as error:
            tell(Failed(error.kind.value, str(error)))
        except TimeoutError:
            tell(Failed(FailureKind.TIMEOUT.value, f"no answer within {limits.seconds:g} s"))

    async def _answer(
        self, question: Question, document: str, limits: Limits, seed: int | None, sampling: Mapping[str, Any],
        tell: Tell,
    ) -> None:
        asked = self._shown_before(question, document)
        text = document if self._reader.agent.needs_document and document.strip() else ""
        chunks = await self._reader.chunks(text)
        if limits.document_tokens and chunks.tokens > limits.document_tokens:
            tell(Failed(TOO_LONG, f"the document has {chunks.tokens} tokens, allowed are {limits.document_tokens}"))
            return
        reading = await asyncio.to_thread(self._reading, asked, chunks, limits)
        sections, group = await asyncio.to_thread(self._placed, text, chunks, question_of(asked))
        tell(Started(sections, chunks.tokens))
        watch = _Watch(self._reader, reading, tell, StopText(limits.stop))
        trajectory = await self._run(reading, group, seed, sampling, watch)
        # Words of a thousand memories take a while to compare, and other readings need this loop meanwhile.
        tell(await asyncio.to_thread(self._end, trajectory, watch, question_of(asked)))

    def _shown_before(self, question: Question, document: str) -> Sample:
        prompt: Any = question if isinstance(question, str) else list(question)
        asked = Sample(prompt=prompt, metadata={})
        if not question_of(asked):
            raise TurnFailed(FailureKind.NO_QUESTION, "there is no question")
        if self._reader.agent.needs_document or not document.strip():
            return asked
        return Sample(prompt=_with_document(asked.prompt, document), metadata={})

    def _placed(self, text: str, chunks: Chunks, question: str) -> tuple[tuple[Section, ...], str]:
        """Where the sections stand, and the routing key of all who read this document."""
        digest = hashlib.sha256((text or question).encode("utf-8", "surrogatepass")).hexdigest()
        return sections_of(text, chunks.chunks, self._reader.vocabulary.decode), f"document-{digest[:16]}"

    def _reading(self, asked: Sample, chunks: Chunks, limits: Limits) -> Reading:
        """Raises TurnFailed where the question or its messages are of no use."""
        vocabulary, most = self._reader.vocabulary, self.config.mem_max_question
        question_ids = vocabulary.encode_text(question_of(asked))
        if len(question_ids) > most:
            raise TurnFailed(FailureKind.LONG_QUESTION, f"question of {len(question_ids)} tokens, allowed are {most}")
        before = messages_before(asked) if self._reader.agent.shows_messages else ()
        budget = min(limits.answer_tokens, self.config.mem_max_final)
        return Reading(question_ids, chunks, vocabulary.encode_text(reply_form(asked)[0]), budget, before)

    async def _run(
        self, reading: Reading, group: str, seed: int | None, sampling: Mapping[str, Any], watch: _Watch
    ) -> Trajectory:
        config = self.config
        params = sampling_of({**evaluation_sampling(config, seed), **sampling}, self._reader.vocabulary.eos_ids)

        async def sample(requests: Sequence[TurnRequest], number: int) -> Sequence[Generation]:
            final = requests[0].kind is TurnKind.FINAL
            how = How(sampling=params, stream=TokenStream(watch.answering) if final else None)
            return await session.sample(requests, number, how)

        with client_for(self.endpoint, config.mem_concurrency).trajectory(group, 1) as session:
            return await run_trajectory(self._reader.agent, reading, sample, watch=watch.round_done)

    def _end(self, trajectory: Trajectory, watch: _Watch, question: str) -> Step:
        if trajectory.failure:
            return Failed(trajectory.failure.kind.value, trajectory.failure.message)
        if trajectory.outcome is Outcome.ABORTED:
            return Failed(ABORTED, "the server ended the request")
        text = up_to_stop(trajectory.answer, watch.stop.stops)
        answer = self._task.read_answer(text)
        counts = trajectory.counts
        return Answered(
            text=text,
            answer=answer,
            sources=sources(watch.turns, answer or text, question),
            cut=trajectory.outcome is Outcome.TRUNCATED and text == trajectory.answer,
            prompt_tokens=int(counts["prompt_tokens"]),
            reply_tokens=int(counts["response_tokens"]),
            cached_tokens=sum(turn.cached_tokens or 0 for turn in trajectory.turns),
        )


def _with_document(prompt: Any, document: str) -> Any:
    if isinstance(prompt, str):
        return f"{document}\n\n{prompt}"
    last = max(i for i, message in enumerate(prompt) if message.get("role") == "user")
    changed = {**prompt[last], "content": f"{document}\n\n{question_of(Sample(prompt=[prompt[last]], metadata={}))}"}
    return [*prompt[:last], changed, *prompt[last + 1 :]]


@dataclass
class StopText:
    """Cuts a text that comes in pieces before its first stop string; what could begin one is held back."""

    stops: Sequence[str]
    stopped: bool = False
    _held: str = ""

    def add(self, piece: str) -> str:
        """What may be told now."""
        if self.stopped:
            return ""
        text = self._held + piece
        cut = up_to_stop(text, self.stops)
        self.stopped = len(cut) < len(text)
        keep = 0 if self.stopped else max(0, len(text) - max(map(len, self.stops), default=1) + 1)
        self._held = "" if self.stopped else text[keep:]
        return cut if self.stopped else text[:keep]

    def rest(self) -> str:
        """What was held back, now that nothing follows."""
        out, self._held = self._held, ""
        return out


def up_to_stop(text: str, stops: Sequence[str]) -> str:
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]


@dataclass
class _Watch:
    """Tells of every round of one trajectory."""

    reader: Reader
    reading: Reading
    tell: Tell
    stop: StopText
    state: Any = None
    """After the last round; None before the first."""
    answer: str = ""
    """What has come of it; what could begin a stop string is not told yet."""
    heard: int = 0
    """Of its tokens."""
    turns: list[TurnDone] = field(default_factory=list)
    rounds: int = 0
    read: int = 0
    """Sections that were shown so far."""

    def round_done(self, turns: Sequence[Turn], state: Any) -> None:
        decode, agent = self.reader.vocabulary.decode, self.reader.agent
        read = int(agent.counts(state).get("chunks_read", 0))
        memory = decode(agent.memory(state))
        if turns[-1].kind is TurnKind.FINAL:
            self._answered(agent.answer(state), ended=True)
            self._tell(self.stop.rest())
        for number, turn in enumerate(turns):
            self._turn_done(turn, self._shown(number, len(turns), read), memory)
        self.rounds += 1
        self.state = state
        self.read = max(self.read, read)

    def answering(self, ids: list[int]) -> bool:
        """Tell how the answer would read if the final turn ended here; a state machine can say that at any time.

        The longer the reply, the more of it has to come before it is decoded again. Says whether a stop string came.
        """
        agent = self.reader.agent
        if len(ids) < self.heard + 1 + self.heard // 32:
            return False
        self.heard = len(ids)
        state = self.state if self.rounds else agent.start(self.reading)
        so_far = Generation(list(ids), [0.0] * len(ids), StopReason.LENGTH)
        self._answered(agent.answer(agent.advance(state, [so_far])).rstrip("\ufffd").rstrip())  # half a character
        return self.stop.stopped

    def _answered(self, text: str, ended: bool = False) -> None:
        """Bytes that begin a character take the ones before with them in some decoders, until they end it; any other
        answer that does not go on as told shows that what was told was thinking, which nothing had opened."""
        if not text.startswith(self.answer):
            if self.answer.startswith(text) and not ended:
                return
            self._tell(_ANEW)
            self.stop, self.answer = StopText(self.stop.stops), ""
        self._tell(self.stop.add(text[len(self.answer) :]))
        self.answer = text

    def _tell(self, text: str) -> None:
        if text:
            self.tell(Delta(text))

    def _shown(self, number: int, turns: int, read: int) -> tuple[int, ...]:
        """What the ``number``-th turn of the round showed; agents read sections in order, each once."""
        if read - self.read == turns:
            return (self.read + number,)
        return tuple(range(self.read, read))

    def _turn_done(self, turn: Turn, sections: tuple[int, ...], memory: str) -> None:
        done = TurnDone(
            number=len(self.turns),
            round=self.rounds,
            kind=turn.kind.value,
            sections=sections,
            memory=memory,
            reply=self.reader.vocabulary.reply_text(turn.response_ids),
            recalled=self.reader.vocabulary.decode(turn.recalled),
            prompt_tokens=len(turn.prompt_ids),
            reply_tokens=len(turn.response_ids),
            cached_tokens=turn.cached_tokens,
        )
        self.turns.append(done)
        self.tell(done)
