"""Reads a document for a question and tells every step: what `mem-agent ask` shows and `mem-agent serve` streams.

The agent, its prompts, budgets and loop are those of training and evaluation; the settings are the model's own
(``checkpoints.hf_model.model_to_ask``), sampling is that of evaluation. ::

    question = [{"role": "user", "content": "Who has the key?"}]
    async with reader_at(MODEL, "http://127.0.0.1:8000", "", LOGS) as reader:
        answered = await reader.read(question, text, print, seed=1)

Invariants:
- a reading ends with its ``Answered``, or raises TurnFailed; only bugs raise anything else;
- cancelling it ends the engine's requests at once;
- a document is read whole: one that is longer than the limit fails before anything is sampled;
- equal document, question, sampling and seed send the requests that evaluation would send.

An agent that reads no document (``AGENT=chat``, ``single``) is shown it before the question, if both fit.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from ..agents.interface import Reading
from ..agents.records import FailureKind, Generation, Outcome, StopReason, Turn, TurnFailed, TurnKind, TurnRequest
from ..checkpoints.hf_model import model_to_ask
from ..config import Config
from ..evaluation.endpoint import KEY, connect
from ..hooks.host import evaluation_sampling, sampling_of
from ..hooks.reader import REPLY_TOKENS, Reader, question_of, task_by_name
from ..hooks.sample import Sample
from ..rollout import run_trajectory
from ..rollout_client import NO_ANSWER, Endpoint, How, client_for, close_clients
from ..system.server_url import checked_url, uses_proxy
from .steps import Answered, Delta, Growing, Section, Started, Step, TurnDone, quoted, sources, stands_in

Tell = Callable[[Step], object]
_BROKEN = "\ufffd"
_TAIL, _NEAR = 24, 64
"""Characters of a chunk's end that are searched for, and how far from the expected place."""


class AskingReader(Reader):
    """One model behind one server; made once, it reads any number of documents side by side."""

    def __init__(self, config: Config, model: Path, endpoint: Endpoint, fleet: Any = None) -> None:
        """``fleet``: the engines behind ``endpoint``, if they were started for this.

        Raises ConfigError: the model's settings or its tokenizer cannot be used.
        """
        super().__init__(str(model), config.replace(hf_ckpt=str(model)), "{}")
        self.endpoint, self.fleet = endpoint, fleet
        self._task = task_by_name(config.tasks[0], config)

    def is_long(self, text: str) -> bool:
        """Whether it has more tokens than a question may have."""
        return len(self.vocabulary.encode_text(text)) > self.config.mem_max_question

    async def healthy(self) -> bool:
        """Whether what is behind it answers."""
        if self.fleet:
            return not self.fleet.out_of_service
        url, timeout = self.endpoint.base_url, aiohttp.ClientTimeout(2)
        async with aiohttp.ClientSession(trust_env=uses_proxy(url), timeout=timeout) as session:
            with suppress(*NO_ANSWER):
                return (await session.get(f"{url}/health")).status < 500
        return False

    async def read(
        self, messages: Sequence[dict[str, str]], document: str, tell: Tell, *, seed: int | None = None,
        sampling: Mapping[str, Any] = {}, stop: Sequence[str] = (), answer_tokens: int = 0, document_tokens: int = 0,
        growing: bool = False,
    ) -> Answered:
        """One reading.

        Args:
            messages: of a chat; the last user message is the question.
            tell: gets every step.
            sampling: ``temperature`` and the like, in place of evaluation's.
            stop: the final reply ends before the first of these strings.
            answer_tokens: most of the final reply, if fewer than MEM_MAX_FINAL; 0: no limit.
            document_tokens: a longer document is refused, never cut; 0: no limit.
            growing: tell memories while they are written.

        Raises:
            TurnFailed: there is no answer; its kind says why.
        """
        question = question_of(Sample(prompt=list(messages)))
        # All readings of a document share a routing key.
        key = hashlib.sha256((document or question).encode("utf-8", "surrogatepass")).hexdigest()
        if document and question and not self.agent.needs_document:
            messages, asked = [*map(dict, messages)], f"{document}\n\n{question}"
            next(message for message in reversed(messages) if message["role"] == "user")["content"] = asked
            document = ""
        metadata = {REPLY_TOKENS: min(answer_tokens, self.config.mem_max_final)}
        reading = await self.reading(Sample(prompt=list(messages), metadata=metadata), document, evaluation=True)
        tokens = reading.document.tokens
        if 0 < document_tokens < tokens:
            raise TurnFailed(FailureKind.LONG_PROMPT, f"the document has {tokens} tokens, allowed: {document_tokens}")
        # Decoding a long document and comparing a thousand memories would stop other readings: both go to a thread.
        sections = await asyncio.to_thread(sections_of, document, reading.document.chunks, self.vocabulary.decode)
        tell(Started(sections, tokens))
        told = _Told(self, reading, stop, tell)
        params = sampling_of({**evaluation_sampling(self.config, seed), **sampling}, self.vocabulary.eos_ids)

        async def sample(requests: Sequence[TurnRequest], number: int) -> Sequence[Generation]:
            how = How(sampling=params)
            if requests[0].kind is TurnKind.FINAL:
                stream = _Stream(told.answer_grown, shown=True)
                how = How(sampling=params | {"stop": list(stop) or None}, stream=stream)
            elif growing and len(requests) == 1 and (section := requests[0].section):
                how = How(sampling=params, stream=_Stream(partial(told.memory_grown, section.number)))
            return await session.sample(requests, number, how)

        with client_for(self.endpoint, self.config.mem_concurrency).trajectory(f"document-{key[:16]}", 1) as session:
            trajectory = await run_trajectory(self.agent, reading, sample, watch=told.round_done)
        if trajectory.failure:
            raise trajectory.failure
        if trajectory.outcome is Outcome.ABORTED:
            raise TurnFailed(FailureKind.SERVER_ERROR, "the server ended the request")
        text = up_to_stop(trajectory.answer, stop)
        answer = self._task.read_answer(text)
        found = await asyncio.to_thread(sources, told.turns, answer or text, question)
        quotes = [quoted(document, sections[number], answer or text, question) for number in found]
        held = {number: document[min(start, sections[number].start) : max(end, sections[number].end)]
                for number, (start, end) in zip(found, quotes, strict=True) if start < end}
        found = tuple(held) if stands_in(list(held.values()), answer or text, question) else ()
        cut = trajectory.outcome is Outcome.TRUNCATED and text == trajectory.answer
        return Answered(text, answer, found, "length" if cut else "stop")


def up_to_stop(text: str, stops: Sequence[str]) -> str:
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]


class _Stream:
    """``How.stream``: puts vLLM's server-sent events together into the answer that comes unstreamed::

        data: {"choices": [{"token_ids": [8], "logprobs": {"content": [{"logprob": -1.0}]}, "finish_reason": null}]}
        data: {"choices": [{"token_ids": [9], "logprobs": {"content": [{"logprob": -2.0}]}, "finish_reason": "stop"}]}
        data: {"choices": [], "usage": {"prompt_tokens": 3}}
        data: [DONE]
    """

    def __init__(self, grown: Callable[[Generation], None], *, shown: bool = False) -> None:
        """``grown`` gets the reply so far; ``shown``: what it got cannot be taken back."""
        self._grown, self._shown = grown, shown
        self.begun = False
        """Whether some of it was shown: another attempt would give another reply."""

    async def read(self, response: Any) -> dict[str, Any]:
        """The answer, from an aiohttp response. Raises ValueError: the stream ended before its reply.

        The longer the reply, the more of it has to come before it is decoded again.
        """
        choice, ids, log_probs, decoded, usage = dict[str, Any](), list[int](), list[Any](), 0, None
        async for line in response.content:
            data = line.removeprefix(b"data:").strip()
            if data == b"[DONE]":
                return {"choices": [choice | {"token_ids": ids, "logprobs": {"content": log_probs}}], "usage": usage}
            event = orjson.loads(data) if line.startswith(b"data:") else {}
            if event.get("error"):
                raise ValueError(f"the stream ended with {str(event['error'])[:300]}")
            usage = event.get("usage") or usage
            for part in event.get("choices") or ():
                ids += part.get("token_ids") or []
                log_probs += (part.get("logprobs") or {}).get("content") or []
                choice |= part
            self.begun = self._shown and bool(ids)
            if len(ids) > decoded + decoded // 32:
                decoded = len(ids)
                self._grown(Generation(list(ids), [0.0] * len(ids), StopReason.LENGTH))
        raise ValueError("the stream ended before its reply did")


class _Told:
    """What was told of one reading: its turns, and memories and the answer as they grow."""

    def __init__(self, reader: AskingReader, reading: Reading, stops: Sequence[str], tell: Tell) -> None:
        self.turns: list[TurnDone] = []
        self._reader, self._stops, self._tell = reader, stops, tell
        self._state: Any = reader.agent.start(reading)
        self._text = ""
        """Of the answer, as far as it was told."""

    def round_done(self, turns: Sequence[Turn], state: Any) -> None:
        vocabulary, self._state = self._reader.vocabulary, state
        if turns[-1].kind is TurnKind.FINAL:
            self._grown(state, ended=True)
        memory = vocabulary.decode(self._reader.agent.memory(state))
        for turn in turns:
            self.turns.append(TurnDone(
                turn.round, turn.kind.value, (turn.section.number,) if turn.section else (), memory,
                vocabulary.reply_text(turn.response_ids), vocabulary.decode(turn.recalled), turn.prompt_tokens,
                len(turn.response_ids), turn.cached_tokens))
            self._tell(self.turns[-1])

    def answer_grown(self, reply: Generation) -> None:
        self._grown(self._reader.agent.advance(self._state, [reply]))

    def memory_grown(self, section: int, reply: Generation) -> None:
        agent = self._reader.agent
        memory = agent.memory(agent.advance(self._state, [reply]))
        self._tell(Growing(section, self._reader.vocabulary.decode(memory).rstrip(_BROKEN)))

    def _grown(self, state: Any, ended: bool = False) -> None:
        """Tell the answer as it would read if the final turn ended here.

        What could be the beginning of a stop string is held back until more has come, as is half a character. Some
        decoders take back a character until the next one is whole. Any other answer that does not go on as told shows
        that what was told was thinking, which nothing had opened.
        """
        text = self._reader.agent.answer(state)
        answer = up_to_stop(text, self._stops)
        if not ended and answer == text:
            text = text.rstrip(_BROKEN).rstrip()
            answer = text[: max(0, len(text) + 1 - max(map(len, self._stops), default=1))]
        if not ended and self._text.startswith(answer):
            return
        if not answer.startswith(self._text):
            self._tell(Delta("</think>"))
            self._text = ""
        if answer != self._text:
            self._tell(Delta(answer[len(self._text) :]))
        self._text = answer


def sections_of(
    document: str, chunks: Sequence[Sequence[int]], decode: Callable[[Sequence[int]], str]
) -> tuple[Section, ...]:
    """Where the document's chunks of token ids stand, in characters: in order, without gaps, all of the document.

    Chunks are decoded and found again, each where the one before it ended. With a byte-level vocabulary that is exact;
    a character that a border cuts goes to the chunk that it begins in. Other tokenizers change a text (blanks, letter
    case, unknown characters); there a chunk's end is searched near the place where it should be, and if it is not
    found that place is taken.

        document "Ann has gold. Ben", chunks [Ann, has] [gold, .] [Ben]  ->  0-7, 7-13, 13-17
    """
    borders = [0]
    for chunk in chunks[:-1]:
        text = decode(chunk).lstrip(_BROKEN)  # of a character that the chunk before has
        whole = text.rstrip(_BROKEN)
        end = borders[-1] + len(whole)
        if not document.startswith(whole, borders[-1]) and whole.strip():
            tail = whole[-_TAIL:]
            found = document.find(tail, max(borders[-1], end - len(tail) - _NEAR), end + _NEAR)
            end = found + len(tail) if found >= 0 else end
        borders.append(min(end + (len(whole) < len(text)), len(document)))
    return tuple(Section(start, end) for start, end in pairwise([*borders, len(document)])) if chunks else ()


@asynccontextmanager
async def reader_at(
    name: str, url: str, served_model: str, logs: Path, **settings: Any
) -> AsyncIterator[AskingReader]:
    """A reader of the model ``name``, a folder or an id, on the server at ``url``, which calls it ``served_model``, or
    without ``url`` on engines that are started for it; they log to ``logs``/logs. ``settings`` win over all others.

    Raises:
        ConfigError: the model cannot hold what the settings ask for, or ``url`` is no address.
        EvalError: nothing answers at ``url``, or nothing that can be used.
        FleetError: the engines do not start.
    """
    base_url = checked_url("--url", url, KEY) if url else ""
    model, config = model_to_ask(name, "MODEL", base_url=base_url, eval_mode="recurrent", **settings)
    async with AsyncExitStack() as stack:
        fleet: Any = None
        if not url:
            from ..serving.fleet import Fleet  # which imports torch

            fleet = await stack.enter_async_context(Fleet(config, model, run_folder=logs))
        stack.push_async_callback(close_clients)
        endpoint = await connect(fleet.url if fleet else "", model, config, served_model)
        yield AskingReader(config, model, endpoint, fleet)
