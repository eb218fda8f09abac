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
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import orjson

from ..config import ConfigError
from ..hooks.chat_model import ChatClient, ChatFailed, ChatSettings
from ..rewards.intrinsic.encoder import encoder_folder, make_encoder
from ..sessions.packing import by_score, pack
from ..sessions.ranking import answer_of, completed, lenient_ranking
from ..sessions.records import HistoryQuestion, Language, Session, Turn, language_of
from ..sessions.wording import embedded_text, load_wording, render_history
from ..system.files import folder_lock
from .rank import NoRoom, ranking_prompt
from .vectors import TokenCounter, VectorStore

T = TypeVar("T")
_log = logging.getLogger(__name__)


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
        self, folder: str | Path, *, embedding_model: str = "bge-m3", embedding_model_path: str = "",
        ranker: ChatSettings | Model | None = None, chat: ChatSettings | Model | None = None,
        language: Language | str | None = None, rank_tokens: int = 120_000, input_tokens: int = 8192,
        tokenizer: str = "", prompts: str = "", device: str | None = None,
    ) -> None:
        """
        Args:
            embedding_model: by name, hub id or ``hashing``; its weights at ``embedding_model_path`` where that is set.
            ranker: who ranks; None ranks by similarity.
            chat: who answers.
            language: of the prompts, ``en`` or ``zh``; None takes the question's.
            rank_tokens: of the ranker's prompt; the most similar sessions that fit are ranked.
            input_tokens: of the sessions that the chat model is shown.
            tokenizer: folder or id of the one that tokens are counted by; the embedding model's own unless set.
            prompts: YAML file with another wording (``sessions/wording.yaml``).

        Raises:
            ConfigError: a model, tokenizer or wording cannot be had.
            MemAgentError: another process has the folder open.
        """
        self._wording, self._language = load_wording(prompts), Language(language) if language else None
        self._rank_tokens, self._input_tokens = rank_tokens, input_tokens
        name, path = embedding_model, embedding_model_path
        encoder = make_encoder(name, "embedding_model", path=path, length=512, device=device)
        counted_by = tokenizer or str(encoder_folder(path or name, "embedding_model"))
        with ExitStack() as opened:
            busy = "another process has it open; close that, or use another folder"
            opened.enter_context(folder_lock(Path(folder), busy=busy, name=".sessions.lock"))
            self._vectors = opened.enter_context(closing(VectorStore(Path(folder) / "vectors", encoder)))
            self._counter = opened.enter_context(closing(TokenCounter(Path(folder) / "vectors", counted_by)))
            base = sqlite3.connect(Path(folder) / "sessions.sqlite", check_same_thread=False)
            self._base = opened.enter_context(closing(base))
            self._held: ExitStack | None = opened.pop_all()
        columns = "place INTEGER PRIMARY KEY, id TEXT UNIQUE, date TEXT, turns TEXT"
        self._base.execute(f"CREATE TABLE IF NOT EXISTS sessions ({columns})")
        rows = self._base.execute("SELECT id, date, turns FROM sessions ORDER BY place")
        self._sessions = {id: Session(id, tuple(Turn(*turn) for turn in orjson.loads(turns)), date)
                          for id, date, turns in rows}
        self._ranker = ChatClient(ranker) if isinstance(ranker, ChatSettings) else ranker
        self._chat = ChatClient(chat) if isinstance(chat, ChatSettings) else chat
        self._lock = threading.RLock()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="sifter", daemon=True).start()

    @property
    def sessions(self) -> list[Session]:
        """All, in the order of time."""
        with self._lock:
            return list(self._sessions.values())

    def add_session(self, turns: Iterable[Turn | Mapping[str, str]], date: str = "", id: str | None = None) -> str:
        """Keep a session, on disk when this returns, and give its id; the same one again changes nothing.

        Args:
            turns: ``{"role": ..., "content": ...}`` or Turn, in their order.
            date: as text, in any form; shown to the models.
            id: else one made from what was said and when.

        Raises:
            ConfigError: no turns, another session has this id, or the Sifter is closed.
        """
        said = tuple(turn if isinstance(turn, Turn) else Turn(turn["role"], turn["content"]) for turn in turns)
        if not said:
            raise ConfigError("a session needs a turn: {'role': 'user', 'content': ...}")
        texts = [[turn.role, turn.content] for turn in said]
        own_id = hashlib.sha256(orjson.dumps([date, *texts])).hexdigest()[:16]
        session = Session(id or own_id, said, date)
        with self._opened():
            if self._sessions.setdefault(session.id, session) != session:
                raise ConfigError(f"another session has the id {session.id!r}; give each its own")
            with self._base:
                self._base.execute("INSERT OR IGNORE INTO sessions (id, date, turns) VALUES (?, ?, ?)",
                                   (session.id, date, orjson.dumps(texts).decode()))
            self._vectors.values([embedded_text(session)])
        return session.id

    async def add_session_async(
        self, turns: Iterable[Turn | Mapping[str, str]], date: str = "", id: str | None = None
    ) -> str:
        """As ``add_session``, which embeds, in another thread."""
        return await asyncio.to_thread(self.add_session, turns, date, id)

    def rank(self, question: str, k: int = 10, *, date: str = "") -> list[Ranked]:
        """The ``k`` best sessions, best first; ``date`` is when the question is asked. Raises ConfigError."""
        return asyncio.run(self.rank_async(question, k, date=date))

    def answer(self, question: str, k: int = 10, *, date: str = "") -> Answer:
        """An answer from the ``k`` best sessions that fit ``input_tokens``.

        Raises:
            ConfigError: there is no chat model.
            ChatFailed: it did not answer.
        """
        return asyncio.run(self.answer_async(question, k, date=date))

    async def rank_async(self, question: str, k: int = 10, *, date: str = "") -> list[Ranked]:
        return list((await self._in_own_loop(partial(self._best, question, k, date)))[1])

    async def answer_async(self, question: str, k: int = 10, *, date: str = "") -> Answer:
        return await self._in_own_loop(partial(self._answer, question, k, date))

    async def _in_own_loop(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with self._opened():
            begun = asyncio.run_coroutine_threadsafe(work(), self._loop)
        return await asyncio.wrap_future(begun)

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
        asked, scores, tokens = await asyncio.to_thread(self._asked, question, date)
        named = await self._named(asked, scores, tokens)
        best = tuple(
            Ranked(asked.sessions[n].id, asked.sessions[n], scores[n], "ranking" if n in named else "similarity")
            for n in completed(named, by_score(scores))[:k]
        )
        return asked, best, tokens

    def _asked(self, question: str, date: str) -> tuple[HistoryQuestion, list[float], list[int]]:
        """The question about all sessions, their similarities and their tokens."""
        with self._opened():
            sessions = tuple(self._sessions.values())
            language = self._language or language_of(question)
            asked = HistoryQuestion("", question.strip(), (), sessions, date=date, language=language)
            if not sessions:
                return asked, [], []
            vectors = self._vectors.values([asked.question, *map(embedded_text, sessions)])
            return asked, (vectors[1:] @ vectors[0]).tolist(), self._counter.sessions(sessions)

    async def _named(self, asked: HistoryQuestion, scores: list[float], tokens: list[int]) -> list[int]:
        """Positions that the ranker names, best first; none without one, or where it fails, which is logged."""
        if self._ranker is None or not asked.sessions:
            return []
        try:
            text, shown, _ = await asyncio.to_thread(
                ranking_prompt, asked, by_score(scores), tokens, limit=self._rank_tokens, wording=self._wording,
                count=self._counter.count)
            reply = await self._ranker.ask([{"role": "user", "content": text}])
        except (ChatFailed, NoRoom) as failed:
            _log.warning("ranked by similarity: %s", failed)
            return []
        return [shown[number] for number in lenient_ranking(reply, len(shown))]

    def close(self) -> None:
        """All connections and files; the folder may be opened elsewhere then."""
        with self._lock:
            held, self._held = self._held, None
        if held:
            for client in (self._ranker, self._chat):
                if isinstance(client, ChatClient):
                    asyncio.run_coroutine_threadsafe(client.close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            held.close()

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """One thread at a time. Raises ConfigError."""
        with self._lock:
            if self._held is None:
                raise ConfigError("the Sifter is closed; open its folder again with Sifter(...)")
            yield

    def __enter__(self) -> Sifter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
