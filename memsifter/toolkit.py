"""MemSifter for an application: keep chat sessions in a folder, find those that a question needs, answer from them.

::

    from mem_agent.hooks.chat_model import ChatSettings
    from mem_agent.memsifter.toolkit import Sifter

    with Sifter("memory", chat=ChatSettings(url="http://127.0.0.1:8000", model="my-model")) as sifter:
        sifter.add_session([{"role": "user", "content": "I moved to Lyon."}], date="2023/05/20")
        sifter.rank("Where do I live?", k=3)      # best first: id, session, score, by
        sifter.answer("Where do I live?").text    # "Lyon"

The folder holds ``sessions.sqlite`` and the vectors of its texts (``embed.py``), so it opens again whenever it was
killed; what a kill left without a vector gets one later.

What models are shown is what they were shown in training and are shown by the stages: same renderer, wording, packing.
Sessions count as having happened in the order in which they were added.

One process has a folder open at a time. Its threads may share a Sifter. Methods without ``async`` in their name wait;
inside an event loop take the others, whose connections end with that loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import orjson

from ..config import ConfigError
from ..hooks.chat_model import ChatClient, ChatFailed, ChatSettings
from ..rewards import sessions as history
from ..rewards.intrinsic.encoder import encoder_folder, make_encoder
from ..rewards.sessions import HistoryQuestion, NoRoom, RankingPrompts, Session, Turn
from ..system.files import folder_lock
from .embed import TokenCounter, VectorStore

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Model(Protocol):
    """What is asked: a ChatClient, or whatever answers like one."""

    async def ask(self, messages: list[dict[str, str]], seed: int | None = None) -> str: ...


class Ranked(NamedTuple):
    id: str
    session: Session
    score: float
    """Cosine of the session and the question, whatever put it in its place."""
    by: Literal["ranking", "similarity"]
    """What did: the ranker, or, where there is none, or it failed or did not name the session, the score."""


class Answer(NamedTuple):
    text: str
    reply: str
    """All that the model said."""
    shown: tuple[str, ...]
    """Ids of the sessions that it saw, in the order of time."""
    ranked: tuple[Ranked, ...]
    tokens: int
    """Of the sessions shown."""


class Sifter(AbstractContextManager["Sifter"]):
    def __init__(
        self, folder: str | Path, *, embedding_model: str = "bge-m3", embedding_model_path: str = "",
        ranker: ChatSettings | Model | None = None, chat: ChatSettings | Model | None = None,
        rank_tokens: int = 120_000, input_tokens: int = 8192, tokenizer: str = "", prompts: str = "",
        device: str | None = None,
    ) -> None:
        """
        Args:
            embedding_model: by name, hub id or ``hashing``; its weights at ``embedding_model_path`` where that is set.
            ranker: who ranks; None ranks by similarity.
            chat: who answers.
            rank_tokens: of the ranker's prompt; the most similar sessions that fit are ranked.
            input_tokens: of the sessions that the chat model is shown.
            tokenizer: folder or id of the one that tokens are counted by; the embedding model's own unless set.
            prompts: YAML file with another wording (``rewards/wording.yaml``).

        Raises:
            ConfigError: a model, tokenizer or wording cannot be had.
            MemAgentError: another process has the folder open.
        """
        name, path = embedding_model, embedding_model_path
        encoder = make_encoder(name, "embedding_model", path=path, length=512, device=device)
        self._counter = TokenCounter(tokenizer or str(encoder_folder(path or name, "embedding_model")))
        self._input_tokens = input_tokens
        self._prompts = RankingPrompts(history.load_wording(prompts), self._counter.count, rank_tokens)
        self._ranker = ChatClient(ranker) if isinstance(ranker, ChatSettings) else ranker
        self._chat = ChatClient(chat) if isinstance(chat, ChatSettings) else chat
        self._held = ExitStack()
        busy = "another process has it open; close that, or use another folder"
        self._held.enter_context(folder_lock(Path(folder), busy=busy, name=".sessions.lock"))
        self._vectors = self._held.enter_context(closing(VectorStore(Path(folder) / "vectors", encoder)))
        base = sqlite3.connect(Path(folder) / "sessions.sqlite", check_same_thread=False)
        self._base = self._held.enter_context(closing(base))
        columns = "place INTEGER PRIMARY KEY, id TEXT UNIQUE, date TEXT, turns TEXT"
        base.execute(f"CREATE TABLE IF NOT EXISTS sessions ({columns})")
        self._sessions = {id: Session(id, tuple(Turn(*turn) for turn in orjson.loads(turns)), date) for id, date, turns
                          in base.execute("SELECT id, date, turns FROM sessions ORDER BY place")}
        self.close = self._held.close
        """Closes all files; the folder may be opened elsewhere then."""

    @property
    def sessions(self) -> list[Session]:
        """All, in the order of time."""
        return list(self._sessions.values())

    def add_session(self, turns: Iterable[Turn | Mapping[str, str]], date: str = "", id: str | None = None) -> str:
        """Keep a session, on disk when this returns, and give its id; the same one again changes nothing.

        Args:
            turns: ``{"role": ..., "content": ...}`` or Turn, in their order.
            date: as text, in any form; shown to the models.
            id: else one made from what was said and when.

        Raises:
            ConfigError: no turns, or another session has this id.
        """
        said = tuple(turn if isinstance(turn, Turn) else Turn(turn["role"], turn["content"]) for turn in turns)
        if not said:
            raise ConfigError("a session needs a turn: {'role': 'user', 'content': ...}")
        texts = [[turn.role, turn.content] for turn in said]
        session = Session(id or hashlib.sha256(orjson.dumps([date, *texts])).hexdigest()[:16], said, date)
        if self._sessions.setdefault(session.id, session) != session:
            raise ConfigError(f"another session has the id {session.id!r}; give each its own")
        with self._base:
            self._base.execute("INSERT OR IGNORE INTO sessions (id, date, turns) VALUES (?, ?, ?)",
                               (session.id, date, orjson.dumps(texts).decode()))
        self._vectors.values([history.embedded_text(session)])
        return session.id

    def rank(self, question: str, k: int = 10, *, date: str = "") -> list[Ranked]:
        """The ``k`` best sessions, best first; ``date`` is when the question is asked."""
        return asyncio.run(self._alone(self.rank_async(question, k, date=date)))

    async def rank_async(self, question: str, k: int = 10, *, date: str = "") -> list[Ranked]:
        return (await self._best(question, k, date))[1]

    def answer(self, question: str, k: int = 10, *, date: str = "") -> Answer:
        """An answer from the ``k`` best sessions that fit ``input_tokens``.

        Raises:
            ConfigError: there is no chat model.
            ChatFailed: it did not answer.
        """
        return asyncio.run(self._alone(self.answer_async(question, k, date=date)))

    async def answer_async(self, question: str, k: int = 10, *, date: str = "") -> Answer:
        if self._chat is None:
            raise ConfigError("no chat model is set; give Sifter(chat=ChatSettings(url=..., model=...))")
        asked, best, tokens = await self._best(question, k, date)
        places = {session.id: place for place, session in enumerate(asked.sessions)}
        packed = history.pack([places[one.id] for one in best], tokens, self._input_tokens)
        shown = [asked.sessions[place] for place in packed.shown]
        prompt = self._prompts.wording.chat_prompt(question, history.render_history(shown), asked.language, date)
        reply = await self._chat.ask([{"role": "user", "content": prompt}])
        ids = tuple(session.id for session in shown)
        return Answer(history.answer_of(reply), reply, ids, tuple(best), packed.tokens)

    async def _alone(self, work: Coroutine[Any, Any, T]) -> T:
        """Work that has an event loop to itself, whose connections end with it."""
        try:
            return await work
        finally:
            for client in (self._ranker, self._chat):
                if isinstance(client, ChatClient):
                    await client.close()

    async def _best(self, question: str, k: int, date: str) -> tuple[HistoryQuestion, list[Ranked], list[int]]:
        """The question with its history, the best sessions, and the tokens of all."""
        asked = HistoryQuestion("", question.strip(), (), tuple(self.sessions), date=date,
                                language=history.language_of(question))
        if not asked.sessions:
            return asked, [], []
        texts = [asked.question, *map(history.embedded_text, asked.sessions)]
        vectors = await asyncio.to_thread(self._vectors.values, texts)
        scores, tokens = (vectors[1:] @ vectors[0]).tolist(), self._counter.sessions(asked.sessions)
        named: list[int] = []
        if self._ranker is not None:
            try:
                text, shown, _ = await asyncio.to_thread(self._prompts.fill, asked, history.by_score(scores))
                reply = await self._ranker.ask([{"role": "user", "content": text}])
                named = [shown[number] for number in history.lenient_ranking(reply, len(shown))]
            except (ChatFailed, NoRoom) as failed:
                _log.warning("ranked by similarity: %s", failed)
        order = history.completed(named, history.by_score(scores))[:k]
        return asked, [Ranked(asked.sessions[n].id, asked.sessions[n], scores[n],
                              "ranking" if n in named else "similarity") for n in order], tokens

    def __exit__(self, *_: object) -> None:
        self.close()
