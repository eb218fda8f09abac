"""MemSifter for an application: keep chat sessions in a folder, find those that a question needs, answer from them.

::

    from mem_agent.hooks.chat_model import ChatSettings
    from mem_agent.memsifter.toolkit import Sifter

    with Sifter("memory", chat=ChatSettings(url="http://127.0.0.1:8000", model="my-model")) as sifter:
        sifter.add_session([{"role": "user", "content": "I moved to Lyon."}], date="2023/05/20")
        sifter.rank("Where do I live?", k=3)      # best first: id, session, score, by
        sifter.answer("Where do I live?").text    # "Lyon"

The folder holds ``sessions.sqlite`` and the vectors of its texts (``vectors.py``), so it opens again whenever it was
killed; what a kill left without a vector gets one later.

What models are shown is what they were shown in training and are shown by the stages: same renderer, wording, packing.
Sessions count as having happened in the order in which they were added.

One process has a folder open at a time. Its threads may share a Sifter. Methods without ``async`` in their name wait;
inside an event loop take the others. Models are asked from a loop of the Sifter's own, whose connections ``close``
ends.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
import threading
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import orjson

from ..config import ConfigError
from ..hooks.chat_model import ChatClient, ChatFailed, ChatSettings
from ..rewards.intrinsic.encoder import HASHING, encoder_folder, make_encoder
from ..sessions.packing import by_score, pack
from ..sessions.ranking import answer_of, completed, in_history, lenient_ranking
from ..sessions.records import HistoryQuestion, Language, Session, Turn, language_of
from ..sessions.wording import embedded_text, load_wording, render_history
from ..system.files import folder_lock
from .embed import VARIABLE
from .rank import NoRoom, ranking_prompt
from .vectors import TokenCounter, VectorStore

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
        if language is not None and language not in tuple(Language):
            raise ConfigError(f"language={language!r}: {' or '.join(Language)}, or None for the question's")
        self._language = Language(language) if language is not None else None
        self._rank_tokens, self._input_tokens = rank_tokens, input_tokens
        if embedding_model == HASHING and not tokenizer:
            raise ConfigError(f"{HASHING} has no tokenizer to count tokens by; name one with tokenizer=")
        counted_by = tokenizer or str(encoder_folder(embedding_model_path or embedding_model, VARIABLE))
        encoder = make_encoder(embedding_model, VARIABLE, path=embedding_model_path, length=512, device=device)
        self._ranker, self._chat = _client(ranker), _client(chat)
        self._held = ExitStack()
        with ExitStack() as opened:
            busy = "another process has it open; close that, or use another folder"
            opened.enter_context(folder_lock(Path(folder), busy=busy, name=".sessions.lock"))
            self._vectors = VectorStore(Path(folder) / "vectors", encoder)
            opened.callback(self._vectors.close)
            self._counter = TokenCounter(Path(folder) / "vectors", counted_by)
            opened.callback(self._counter.close)
            self._base = sqlite3.connect(Path(folder) / "sessions.sqlite", check_same_thread=False)
            opened.callback(self._base.close)
            self._sessions = _sessions(self._base, Path(folder) / "sessions.jsonl")
            self._held = opened.pop_all()
        self._lock = threading.RLock()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="sifter", daemon=True).start()

    @property
    def sessions(self) -> list[Session]:
        """All, in the order of time."""
        with self._lock:
            return list(self._sessions.values())

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
            known = self._sessions.get(session.id)
            if known is None:
                _keep(self._base, session)
                self._sessions[session.id] = session
                self._vectors.embed([embedded_text(session)])
            elif known != session:
                raise ConfigError(f"another session has the id {session.id!r}; give each its own")
        return session.id

    async def add_session_async(self, turns: Iterable[Said], date: str = "", id: str | None = None) -> str:
        """As ``add_session``, which embeds, in another thread."""
        return await asyncio.to_thread(self.add_session, turns, date, id)

    def rank(self, question: str, k: int = 10, *, date: str = "") -> list[Ranked]:
        """The ``k`` best sessions, best first; ``date`` is when the question is asked. Raises ConfigError."""
        return list(self._begun(self._best(question, k, date)).result()[1])

    def answer(self, question: str, k: int = 10, *, date: str = "") -> Answer:
        """An answer from the ``k`` best sessions that fit ``input_tokens``.

        Raises:
            ConfigError: there is no chat model.
            ChatFailed: it did not answer.
        """
        return self._begun(self._answer(question, k, date)).result()

    async def rank_async(self, question: str, k: int = 10, *, date: str = "") -> list[Ranked]:
        return list((await asyncio.wrap_future(self._begun(self._best(question, k, date))))[1])

    async def answer_async(self, question: str, k: int = 10, *, date: str = "") -> Answer:
        return await asyncio.wrap_future(self._begun(self._answer(question, k, date)))

    async def _answer(self, question: str, k: int, date: str) -> Answer:
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
            sessions = tuple(self._sessions.values())
            language = self._language or language_of(question)
            asked = HistoryQuestion("", question.strip(), (), sessions, date=when, language=language)
            if not sessions:
                return asked, [], []
            vectors = self._vectors.vectors([asked.question, *map(embedded_text, sessions)])
            return asked, (vectors[1:] @ vectors[0]).tolist(), self._counter.sessions(sessions)

    async def _named(self, asked: HistoryQuestion, scores: list[float], tokens: list[int]) -> tuple[int, ...]:
        """Positions that the ranker names, best first; none without one, or where it fails, which is logged."""
        if self._ranker is None or not asked.sessions:
            return ()
        try:
            text, shown = await asyncio.to_thread(
                ranking_prompt, asked, scores, tokens, limit=self._rank_tokens, top_k=0, wording=self._wording,
                count=self._counter.count,
            )
            reply = await self._ranker.ask([{"role": "user", "content": text}])
        except (ChatFailed, NoRoom) as failed:
            _log.warning("ranked by similarity: %s", failed)
            return ()
        return in_history(lenient_ranking(reply, len(shown)), shown)

    def close(self) -> None:
        """All connections and files; the folder may be opened elsewhere then."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for client in (self._ranker, self._chat):
            if isinstance(client, ChatClient):
                asyncio.run_coroutine_threadsafe(client.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._held.close()

    def _begun(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """``work`` in the Sifter's own loop, or ConfigError."""
        try:
            self._check_open()
        except ConfigError:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError("the Sifter is closed; open its folder again with Sifter(...)")

    def __enter__(self) -> Sifter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sessions(base: sqlite3.Connection, log: Path) -> dict[str, Session]:
    """All sessions by id, in the order of time; those of ``log``, where earlier versions kept them, come in first."""
    with base:
        base.execute("CREATE TABLE IF NOT EXISTS sessions (place INTEGER PRIMARY KEY, id TEXT UNIQUE, date TEXT, "
                     "turns TEXT)")
    rows = base.execute("SELECT id, date, turns FROM sessions ORDER BY place").fetchall()
    if not rows and log.exists():
        for line in log.read_bytes().splitlines():
            old = orjson.loads(line)
            _keep(base, Session(old["id"], tuple(Turn(*turn) for turn in old["turns"]), old["date"]))
        return _sessions(base, log)
    return {id: Session(id, tuple(Turn(*turn) for turn in orjson.loads(turns)), date) for id, date, turns in rows}


def _keep(base: sqlite3.Connection, session: Session) -> None:
    turns = orjson.dumps([[turn.role, turn.content] for turn in session.turns]).decode()
    with base:
        base.execute("INSERT INTO sessions (id, date, turns) VALUES (?, ?, ?)", (session.id, session.date, turns))


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


def _own_id(turns: tuple[Turn, ...], date: str) -> str:
    content = orjson.dumps([date, *([turn.role, turn.content] for turn in turns)])
    return hashlib.sha256(content).hexdigest()[:16]
