"""MemSifter for an application: keep chat sessions in a folder, find those that a question needs, answer from them.

::

    from mem_agent.hooks.chat_model import ChatSettings
    from mem_agent.memsifter.toolkit import Sifter

    with Sifter("memory", chat=ChatSettings(url="http://127.0.0.1:8000", model="my-model")) as sifter:
        sifter.add_session([{"role": "user", "content": "I moved to Lyon."}], date="2023/05/20")
        sifter.rank("Where do I live?", k=3)      # best first: id, session, score, by
        sifter.answer("Where do I live?").text    # "Lyon"

The folder holds ``sessions.jsonl`` (``session_log.py``) and the vectors of its texts (``embedding_store.py``). Both
are only ever appended to, so it opens again whenever it was killed; what a kill left without a vector gets one later.

What models are shown is what they were shown in training and are shown by the stages: same renderer, wording, packing.
Sessions count as having happened in the order in which they were added.

One process has a folder open at a time. Its threads may share a Sifter. Methods without ``async`` in their name wait;
inside an event loop take the others.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import orjson

from ..config import ConfigError
from ..hooks.chat_model import ChatClient, ChatFailed, ChatSettings
from ..rewards.intrinsic.encoder import HASHING, Encoder, encoder_folder
from ..sessions.answer import answer_of
from ..sessions.packing import by_score, pack
from ..sessions.ranking import completed, in_history, lenient_ranking
from ..sessions.records import HistoryQuestion, Language, Session, Turn
from ..sessions.render import embedded_text, render_history
from ..sessions.wording import language_of, load_wording
from .session_log import SessionLog
from .stages.ranking_prompt import NoRoom, ranking_prompt
from .stores.embedding_store import VARIABLE, EmbeddingStore, TokenCounter, embedding_model

T = TypeVar("T")
_log = logging.getLogger(__name__)
Said = Turn | Mapping[str, str]


class Model(Protocol):
    """What is asked: a ChatClient, or whatever answers like one."""

    async def ask(self, messages: list[dict[str, str]], seed: int | None = None) -> str: ...


@dataclass(frozen=True, slots=True)
class Ranked:
    id: str
    session: Session
    score: float
    """Cosine of the session and the question, whatever put it in its place."""
    by: Literal["ranking", "similarity"]
    """What did: the ranker, or, where there is none, or it failed or did not name the session, the score."""


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    reply: str
    """All that the model said."""
    shown: tuple[str, ...]
    """Ids of the sessions that it saw, in the order of time."""
    ranked: tuple[Ranked, ...]
    tokens: int
    """Of the sessions shown."""


class Sifter:
    def __init__(
        self,
        folder: str | Path,
        *,
        embedding_model: str = "bge-m3",
        embedding_model_path: str = "",
        ranker: ChatSettings | Model | None = None,
        chat: ChatSettings | Model | None = None,
        language: Language | str | None = None,
        rank_tokens: int = 120_000,
        input_tokens: int = 8192,
        tokenizer: str = "",
        prompts: str = "",
        device: str | None = None,
    ) -> None:
        """
        Args:
            embedding_model: by name, hub id or ``hashing``; its weights at ``embedding_model_path`` where that is set.
            ranker: who ranks; None ranks by similarity.
            chat: who answers.
            language: of the prompts; None takes the question's.
            rank_tokens: of the ranker's prompt; the most similar sessions that fit are ranked.
            input_tokens: of the sessions that the chat model is shown.
            tokenizer: folder or id of the one that tokens are counted by; the embedding model's own unless set.
            prompts: YAML file with another wording (``sessions/wording.yaml``).

        Raises:
            ConfigError: a model, tokenizer or wording cannot be had.
            MemAgentError: another process has the folder open, or it is damaged.
        """
        self._wording = load_wording(prompts)
        self._language = _language(language)
        self._rank_tokens, self._input_tokens = rank_tokens, input_tokens
        self._store = EmbeddingStore(Path(folder) / "vectors", _encoder(embedding_model, embedding_model_path, device))
        own = embedding_model_path or embedding_model
        counted_by = tokenizer or ("" if embedding_model == HASHING else str(encoder_folder(own, VARIABLE)))
        if not counted_by:
            raise ConfigError(f"{HASHING} has no tokenizer to count tokens by; name one with tokenizer=")
        self._counter = TokenCounter(Path(folder) / "vectors", counted_by)
        self._log = SessionLog(Path(folder) / "sessions.jsonl")
        self._ids = {session.id: place for place, session in enumerate(self._log.sessions)}
        self._lock = threading.RLock()
        self._closed = False
        self._loop = _LoopThread()
        self._ranker, self._chat = _client(ranker), _client(chat)

    @property
    def sessions(self) -> list[Session]:
        """All, in the order of time."""
        with self._lock:
            return list(self._log.sessions)

    def add_session(self, turns: Iterable[Said], date: str = "", id: str | None = None) -> str:
        """Keep a session, on disk when this returns, and give its id; the same one again changes nothing.

        Args:
            turns: ``{"role": ..., "content": ...}`` or Turn, in their order.
            date: as text, in any form; shown to the models.
            id: else one made from what was said and when.

        Raises:
            ConfigError: no turns, something that is no text, another session has this id, or the Sifter is closed.
        """
        said = tuple(map(_turn, turns))
        if not said:
            raise ConfigError("a session needs a turn: {'role': 'user', 'content': ...}")
        when = _text(date, "date")
        session = Session(_text(id or "", "id") or _own_id(said, when), said, when)
        with self._lock:
            self._check_open()
            place = self._ids.get(session.id)
            if place is not None:
                if self._log.sessions[place] != session:
                    raise ConfigError(f"another session has the id {session.id!r}; give each its own")
                return session.id
            self._log.add(session)
            self._ids[session.id] = place = len(self._log.sessions) - 1
            self._store.embed([embedded_text(session)])
        return session.id

    def rank(self, question: str, k: int = 10, *, date: str = "") -> list[Ranked]:
        """The ``k`` best sessions, best first; ``date`` is when the question is asked. Raises ConfigError."""
        return self._loop.run(self.rank_async(question, k, date=date))

    def answer(self, question: str, k: int = 10, *, date: str = "") -> Answer:
        """An answer from the ``k`` best sessions that fit ``input_tokens``.

        Raises:
            ConfigError: there is no chat model.
            ChatFailed: it did not answer.
        """
        return self._loop.run(self.answer_async(question, k, date=date))

    async def rank_async(self, question: str, k: int = 10, *, date: str = "") -> list[Ranked]:
        return list((await self._best(question, k, date))[1])

    async def answer_async(self, question: str, k: int = 10, *, date: str = "") -> Answer:
        if self._chat is None:
            raise ConfigError("no chat model is set; give Sifter(chat=ChatSettings(url=..., model=...))")
        asked, best, tokens = await self._best(question, k, date)
        places = {session.id: place for place, session in enumerate(asked.sessions)}
        packed = pack([places[one.id] for one in best], tokens, self._input_tokens)
        shown = [asked.sessions[place] for place in packed.shown]
        prompt = self._wording.chat_prompt(question, render_history(shown), asked.language, date)
        reply = await self._chat.ask([{"role": "user", "content": prompt}])
        return Answer(answer_of(reply), reply, tuple(session.id for session in shown), best, packed.tokens)

    async def _best(self, question: str, k: int, date: str) -> tuple[HistoryQuestion, tuple[Ranked, ...], list[int]]:
        """The question with its history, the best sessions, and the tokens of all."""
        if not isinstance(k, int) or k < 1:
            raise ConfigError(f"k={k!r}: a whole number from 1 on says how many sessions")
        asked, scores, tokens = await asyncio.to_thread(self._asked, question, date)
        named = await self._named(asked, scores, tokens)
        best = tuple(
            Ranked(asked.sessions[n].id, asked.sessions[n], scores[n], "ranking" if n in named else "similarity")
            for n in completed(named, by_score(scores))[:k]
        )
        return asked, best, tokens

    def _asked(self, question: str, date: str) -> tuple[HistoryQuestion, list[float], list[int]]:
        """The question about all sessions, their similarities and their tokens."""
        if not _text(question, "question").strip():
            raise ConfigError("the question is empty")
        when = _text(date, "date")
        with self._lock:
            self._check_open()
            sessions = tuple(self._log.sessions)
            language = self._language or language_of(question)
            asked = HistoryQuestion("", question.strip(), (), sessions, date=when, language=language)
            if not sessions:
                return asked, [], []
            vectors = self._store.vectors([asked.question, *map(embedded_text, sessions)])
            return asked, (vectors[1:] @ vectors[0]).tolist(), self._counter.sessions(sessions)

    async def _named(self, asked: HistoryQuestion, scores: list[float], tokens: list[int]) -> tuple[int, ...]:
        """Positions that the ranker names, best first; none without one, or where it fails, which is logged."""
        if self._ranker is None or not asked.sessions:
            return ()
        try:
            prompt = await asyncio.to_thread(
                ranking_prompt, asked, scores, tokens, limit=self._rank_tokens, top_k=0, wording=self._wording,
                count=self._counter.count,
            )
            reply = await self._ranker.ask([{"role": "user", "content": prompt.text}])
        except (ChatFailed, NoRoom) as failed:
            _log.warning("ranked by similarity: %s", failed)
            return ()
        return in_history(lenient_ranking(reply, len(prompt.shown)), prompt.shown)

    def close(self) -> None:
        """The folder may be opened elsewhere then."""
        self._closed = True
        self._loop.close([client for client in (self._ranker, self._chat) if isinstance(client, ChatClient)])
        self._log.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError("the Sifter is closed; open its folder again with Sifter(...)")

    def __enter__(self) -> Sifter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _LoopThread:
    """An event loop in a thread of its own, for those who wait; started when it is first needed."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="sifter", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self, clients: Iterable[ChatClient]) -> None:
        if self._loop is None:
            return
        for client in clients:
            self.run(client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop = None


def _encoder(name: str, path: str, device: str | None) -> Encoder:
    return embedding_model(name, path=path, device=device)


def _client(given: ChatSettings | Model | None) -> Model | None:
    return ChatClient(given) if isinstance(given, ChatSettings) else given


def _turn(said: Said) -> Turn:
    """Raises ConfigError."""
    try:
        role, content = (said.role, said.content) if isinstance(said, Turn) else (said["role"], said["content"])
    except (KeyError, TypeError):
        raise ConfigError(f"a turn is {{'role': ..., 'content': ...}}, not {said!r:.80}") from None
    return Turn(_text(role, "role"), _text(content, "content"))


def _text(value: object, name: str) -> str:
    """Raises ConfigError."""
    if not isinstance(value, str):
        raise ConfigError(f"{name}={value!r:.80}: is no text")
    return value


def _language(given: Language | str | None) -> Language | None:
    """Raises ConfigError."""
    if given is not None and given not in tuple(Language):
        raise ConfigError(f"language={given!r}: {' or '.join(Language)}, or None for the question's")
    return Language(given) if given is not None else None


def _own_id(turns: tuple[Turn, ...], date: str) -> str:
    content = orjson.dumps([date, *([turn.role, turn.content] for turn in turns)])
    return hashlib.sha256(content).hexdigest()[:16]
