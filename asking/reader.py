"""Reads a document for a question and yields every step: what `mem-agent ask` shows and `mem-agent serve` streams.

The agent, its prompts, budgets and loop are those of training and evaluation; the settings are the model's own
(``checkpoints.hf_model.config_for_model``), sampling is that of evaluation. ::

    config, _ = config_for_model(model)
    reader = AskingReader(config, model, "http://127.0.0.1:8000")
    async with aclosing(reader.read("Who has the key?", text, Options(seconds=60, seed=1))) as steps:
        async for step in steps:
            ...
    await close_clients()                                       # rollout_client's, once, at the end

Invariants:
- the last step is ``Answered`` or ``Failed``; only bugs raise;
- closing the iterator, or cancelling its consumer, ends the engine's requests at once;
- a document is read whole: one that is longer than the limit fails before anything is sampled;
- equal document, question, sampling and seed send the requests that evaluation would send.

An agent that reads no document (``AGENT=chat``, ``single``) is shown it before the question, if both fit.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import orjson

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
from ..checkpoints.hf_model import load_vocabulary, with_engine_length
from ..config import Config
from ..evaluation.endpoint import KEY, connect
from ..hooks.host import evaluation_sampling, sampling_of
from ..hooks.reader import question_of, reader_for, task_by_name
from ..hooks.sample import Sample
from ..rollout import run_trajectory
from ..rollout_client import NO_ANSWER, Dialect, Endpoint, How, client_for
from ..system.processes import FleetError
from ..system.server_url import checked_url, uses_proxy
from .sources import sources
from .steps import ABORTED, TOO_LONG, Answered, Delta, Failed, Options, Section, Started, Step, TurnDone

Question = str | Sequence[Mapping[str, Any]]
"""A text, or chat messages whose last user message is the question."""
_BROKEN = "\ufffd"
_TAIL, _NEAR = 24, 64
"""Characters of a chunk's end that are searched for, and how far from the expected place."""


class AskingReader:
    """One model behind one server; made once, it reads any number of documents side by side."""

    def __init__(self, config: Config, model: Path, server: str | Endpoint) -> None:
        """``server`` is the address of a router, or an endpoint such as ``evaluation.endpoint.connect`` gives.

        Raises:
            ConfigError: the model's settings or its tokenizer cannot be used.
        """
        self.endpoint = Endpoint(Dialect.VLLM, server, config.engine_max_len) if isinstance(server, str) else server
        self.config = config.replace(hf_ckpt=str(model))
        self._reader = reader_for(str(model), self.config, "{}")
        self.agent, self.vocabulary = self._reader.agent, self._reader.vocabulary
        self._task = task_by_name(self.config.tasks[0], self.config)

    def is_long(self, text: str) -> bool:
        """Whether it has more tokens than a question may have."""
        return len(self.vocabulary.encode_text(text)) > self.config.mem_max_question

    async def read(self, question: Question, document: str, options: Options) -> AsyncGenerator[Step, None]:
        """Every step of one reading."""
        steps: asyncio.Queue[Step | None] = asyncio.Queue()
        work = asyncio.ensure_future(self._read(question, document, options, steps.put_nowait))
        work.add_done_callback(lambda _: steps.put_nowait(None))
        try:
            while (step := await steps.get()) is not None:
                yield step
            await work
        finally:
            work.cancel()
            await asyncio.wait({work})

    async def _read(
        self, question: Question, document: str, options: Options, tell: Callable[[Step], None]
    ) -> None:
        try:
            async with asyncio.timeout(options.seconds or None):
                tell(await self._last_step(question, document, options, tell))
        except TurnFailed as error:
            tell(Failed(error.kind.value, str(error)))
        except TimeoutError:
            tell(Failed(FailureKind.TIMEOUT.value, f"no answer within {options.seconds:g} s"))

    async def _last_step(
        self, question: Question, document: str, options: Options, tell: Callable[[Step], None]
    ) -> Step:
        text = document if document.strip() else ""
        prompt: Any = question if isinstance(question, str) else list(question)
        asked = Sample(prompt=prompt, metadata={})
        said = question_of(asked)
        # All readings of a document share a routing key.
        key = hashlib.sha256((text or said).encode("utf-8", "surrogatepass")).hexdigest()
        if text and not self.agent.needs_document:
            asked, text = Sample(prompt=_behind(text, asked), metadata={}), ""
        reading = await self._reader.reading(asked, text, evaluation=True)
        reading = replace(reading, reply_tokens=min(options.answer_tokens, self.config.mem_max_final))
        tokens = reading.document.tokens
        if 0 < options.document_tokens < tokens:
            return Failed(TOO_LONG, f"the document has {tokens} tokens, allowed are {options.document_tokens}")
        # Decoding a long document and comparing a thousand memories would stop other readings: both go to a thread.
        sections = await asyncio.to_thread(sections_of, text, reading.document.chunks, self.vocabulary.decode)
        tell(Started(sections, tokens))
        watch = _Watch(self, reading, options.stop, tell)
        params = {**evaluation_sampling(self.config, options.seed), **options.sampling}
        params = sampling_of(params, self.vocabulary.eos_ids)

        async def sample(requests: Sequence[TurnRequest], number: int) -> Sequence[Generation]:
            stream = TokenStream(watch.answering) if requests[0].kind is TurnKind.FINAL else None
            return await session.sample(requests, number, How(sampling=params, stream=stream))

        with client_for(self.endpoint, self.config.mem_concurrency).trajectory(f"document-{key[:16]}", 1) as session:
            trajectory = await run_trajectory(self.agent, reading, sample, watch=watch.round_done)
        return await asyncio.to_thread(self._answered, trajectory, watch, said)

    def _answered(self, trajectory: Trajectory, watch: _Watch, question: str) -> Step:
        if trajectory.failure:
            return Failed(trajectory.failure.kind.value, trajectory.failure.message)
        if trajectory.outcome is Outcome.ABORTED:
            return Failed(ABORTED, "the server ended the request")
        turns, text = watch.turns, up_to_stop(trajectory.answer, watch.stops)
        answer = self._task.read_answer(text)
        return Answered(
            text, answer, sources(turns, answer or text, question),
            cut=trajectory.outcome is Outcome.TRUNCATED and text == trajectory.answer,
            prompt_tokens=sum(turn.prompt_tokens for turn in turns),
            reply_tokens=sum(turn.reply_tokens for turn in turns),
            cached_tokens=sum(turn.cached_tokens or 0 for turn in turns),
        )


def _behind(document: str, asked: Sample) -> Any:
    """The prompt of ``asked`` with the document before its question."""
    content = f"{document}\n\n{question_of(asked)}"
    if isinstance(asked.prompt, str):
        return content
    last = max(i for i, message in enumerate(asked.prompt) if message["role"] == "user")
    return [*asked.prompt[:last], {"role": "user", "content": content}, *asked.prompt[last + 1 :]]


def up_to_stop(text: str, stops: Sequence[str]) -> str:
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]


class _Watch:
    """Tells the steps of one trajectory: its turns, and the answer as it grows."""

    def __init__(
        self, asking: AskingReader, reading: Reading, stops: Sequence[str], tell: Callable[[Step], None]
    ) -> None:
        self.stops, self.turns = stops, list[TurnDone]()
        self._agent, self._vocabulary, self._tell = asking.agent, asking.vocabulary, tell
        self._state: Any = self._agent.start(reading)
        self._told, self._decoded = "", 0
        """Of the answer, and how many of its tokens there were when it was last decoded."""

    def round_done(self, turns: Sequence[Turn], state: Any) -> None:
        if turns[-1].kind is TurnKind.FINAL:
            self._grown(self._agent.answer(state), ended=True)
        decode = self._vocabulary.decode
        memory = decode(self._agent.memory(state))
        for turn in turns:
            done = TurnDone(
                len(self.turns), turn.round, turn.kind.value, (turn.section.number,) if turn.section else (), memory,
                self._vocabulary.reply_text(turn.response_ids), decode(turn.recalled), turn.prompt_tokens,
                len(turn.log_probs), turn.cached_tokens)
            self.turns.append(done)
            self._tell(done)
        self._state = state

    def answering(self, ids: list[int]) -> bool:
        """Tell the answer as it would read if the final turn ended here; whether a stop string has come.

        The longer the reply, the more of it has to come before it is decoded again.
        """
        if len(ids) < self._decoded + 1 + self._decoded // 32:
            return False
        self._decoded = len(ids)
        so_far = self._agent.advance(self._state, [Generation(list(ids), [0.0] * len(ids), StopReason.LENGTH)])
        return self._grown(self._agent.answer(so_far).rstrip(_BROKEN).rstrip())  # half a character

    def _grown(self, text: str, ended: bool = False) -> bool:
        """What could be the beginning of a stop string is held back until more has come.

        Some decoders take back a character until the next one is whole. Any other answer that does not go on as told
        shows that what was told was thinking, which nothing had opened.
        """
        answer = up_to_stop(text, self.stops)
        stopped = len(answer) < len(text)
        if not (ended or stopped):
            answer = answer[: max(0, len(answer) + 1 - max(map(len, self.stops), default=1))]
        if not ended and self._told.startswith(answer):
            return stopped
        if not answer.startswith(self._told):
            self._tell(Delta("</think>"))
            self._told = ""
        if answer != self._told:
            self._tell(Delta(answer[len(self._told) :]))
        self._told = answer
        return stopped


class TokenStream:
    """``How.stream`` of one request: puts vLLM's server-sent events together into the answer that comes unstreamed.

        data: {"choices": [{"token_ids": [8], "logprobs": {"content": [{"logprob": -1.0}]}, "finish_reason": null}]}
        data: {"choices": [{"token_ids": [9], "logprobs": {"content": [{"logprob": -2.0}]}, "finish_reason": "stop"}]}
        data: {"choices": [], "usage": {"prompt_tokens": 3}}
        data: [DONE]

    ``enough`` gets all ids so far and returns whether the reply may end there.
    """

    def __init__(self, enough: Callable[[list[int]], bool]) -> None:
        self._enough = enough
        self.token_ids: list[int] = []

    @property
    def begun(self) -> bool:
        """Whether some of it was shown: sampled again, it would be another reply."""
        return bool(self.token_ids)

    async def read(self, response: Any) -> dict[str, Any]:
        """The answer, from an aiohttp response. Raises ValueError: the stream ended before its reply."""
        choice, log_probs, usage = dict[str, Any](), list[Any](), None
        async for line in response.content:
            data = line.removeprefix(b"data:").strip()
            if data == b"[DONE]":
                break
            if not line.startswith(b"data:"):
                continue
            event = orjson.loads(data)
            if event.get("error"):
                raise ValueError(f"the stream ended with {str(event['error'])[:300]}")
            usage = event.get("usage") or usage
            for part in event.get("choices") or ():
                self.token_ids += part.get("token_ids") or []
                log_probs += (part.get("logprobs") or {}).get("content") or []
                choice |= {name: value for name, value in part.items() if value is not None}
            if self._enough(self.token_ids):
                choice["finish_reason"] = "stop"
                break  # leaving the response unread ends it at the engine
        else:
            raise ValueError("the stream ended before its reply did")
        choice |= {"token_ids": self.token_ids, "logprobs": {"content": log_probs}}
        return {"choices": [choice], "usage": usage}


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


# --- what is asked --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Served:
    """A model that can be asked, and the engines that were started for it, if any."""

    reader: AskingReader
    fleet: Any = None

    async def healthy(self) -> bool:
        """Whether what is behind it answers."""
        if self.fleet:
            return not self.fleet.out_of_service
        url = self.reader.endpoint.base_url
        async with aiohttp.ClientSession(trust_env=uses_proxy(url), timeout=aiohttp.ClientTimeout(2)) as session:
            try:
                async with session.get(f"{url}/health") as reply:
                    return reply.status < 500
            except NO_ANSWER:
                return False


@asynccontextmanager
async def reader_at(
    url: str, model: Path, config: Config, logs: Path | None = None, *, served_model: str = ""
) -> AsyncIterator[Served]:
    """A reader on the server at ``url``, where the model is called ``served_model``, or on engines that are started
    for it where there is no ``url``. What engines print goes to ``logs``, else into a folder of their own, which stays
    only where they failed, since the error names a file in it.

    Raises:
        ConfigError: the model cannot hold what the settings ask for, or ``url`` is no address.
        EvalError: nothing answers at ``url``, or nothing that can be used.
        FleetError: the engines do not start. Raised inside the context, it keeps their logs as well.
    """
    if url:
        asked = config.replace(base_url=checked_url("--url", url, KEY))
        yield Served(AskingReader(asked, model, await connect("", model, asked, served_model)))
        return
    from ..serving.fleet import Fleet  # which imports torch

    config = with_engine_length(config, model, load_vocabulary(model, config.trust_remote_code))
    folder = logs or Path(tempfile.mkdtemp(prefix="mem-agent-ask-"))
    try:
        async with Fleet(config, model, run_folder=folder) as fleet:
            yield Served(AskingReader(config, model, fleet.url), fleet)
    except FleetError:
        logs = folder
        raise
    finally:
        if not logs:
            shutil.rmtree(folder)
