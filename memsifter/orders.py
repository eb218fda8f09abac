"""Which sessions of a history are shown, from a row of an earlier stage.

``--methods`` names whose order counts; OUTPUT_DIR is ``--output-dir``::

    bge-m3       OUTPUT_DIR/bge-m3/locomo_test_embed.parquet      by similarity
    my-ranker    OUTPUT_DIR/my-ranker/locomo_test_ranking.parquet what it named, then by similarity
    bm25, full   stage 1's file of the embedding model           by words in common; the newest, without top_k
    a_mem        OUTPUT_DIR/a_mem/locomo_test_retrieved_memory.parquet
                                                                  its column retrieved_memory, shown as it is

The rule is that of training's reward and of the toolkit (``sessions.packing``): the first ``top_k`` of the order,
those of them that fit ``max_input_tokens``, shown in the order of time. Tokens are stage 1's counts of the sessions
alone. BM25 is Lucene's (k1 1.5, b 0.75), of turns and speakers' names; Chinese counts by characters, English without
stop words (``agents/recall.py``).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from ..agents.recall import Bag, WordCounter, bm25
from ..sessions.packing import by_score, pack
from ..sessions.ranking import completed
from ..sessions.records import BadRow, HistoryQuestion
from ..sessions.wording import embedded_text, render_history
from .files import EMBED, MEMORY, RANKING, MissingStage, Part, has_files, parts

T = TypeVar("T")


class Order(StrEnum):
    SIMILARITY = "similarity"
    RANKING = "ranking"
    BM25 = "bm25"
    FULL = "full"
    MEMORY = "memory"


_KINDS = {Order.RANKING: RANKING, Order.MEMORY: MEMORY, Order.SIMILARITY: EMBED}
_OF_STAGE_1 = (Order.BM25, Order.FULL)


@dataclass(frozen=True, slots=True)
class Method:
    """A name in ``--methods``."""

    name: str
    order: Order
    model: str
    """Whose files it reads."""

    def source(self, part: Part, output_dir: str) -> Path:
        """Raises MissingStage."""
        return part.made(output_dir, _KINDS.get(self.order, EMBED), self.model)

    def parts(self, given: argparse.Namespace) -> list[Part]:
        return parts(given, _KINDS.get(self.order, EMBED), self.model)


def methods(given: argparse.Namespace) -> list[Method]:
    """Those that are named, or the embedding model's order. Raises MissingStage where a name has no files."""
    names = given.methods.split() or [given.embedding_model_name]
    return [_method(name, given) for name in dict.fromkeys(names)]


def _method(name: str, given: argparse.Namespace) -> Method:
    if name in _OF_STAGE_1:
        return Method(name, Order(name), given.embedding_model_name)
    if name == given.embedding_model_name:
        return Method(name, Order.SIMILARITY, name)
    for order, kind in _KINDS.items():
        if has_files(given, kind, name):
            return Method(name, order, name)
    raise MissingStage(f"--methods {name}: {Path(given.output_dir, name)} has no file of these data sets and "
                       f"splits; mem-agent session-ranking --model-name {name} makes it")


@dataclass(frozen=True, slots=True)
class Budget:
    """Of what a chat model is shown."""

    top_k: int = 10
    tokens: int = 8192
    full_tokens: int = 131072
    """Of the method ``full``, which has no top_k."""


@dataclass(frozen=True, slots=True)
class Shown:
    positions: tuple[int, ...]
    """In the history, ascending; none of an own memory's text."""
    tokens: int
    """Of the sessions, as stage 1 counted them."""
    history: str
    """As the prompt shows it."""


def shown(row: Mapping[str, Any], asked: HistoryQuestion, order: Order, budget: Budget) -> Shown:
    """Raises BadRow where a column of the earlier stage is not there, or of another history."""
    if order is Order.MEMORY:
        memory = row.get("retrieved_memory")
        if not isinstance(memory, str):
            raise BadRow(f"question {asked.id}: no text in the column retrieved_memory")
        return Shown((), 0, memory)
    tokens = session_tokens(row, asked)
    if order is Order.FULL:
        packed = pack(full_order(asked), tokens, budget.full_tokens)
    else:
        packed = pack(_best_first(row, asked, order)[: budget.top_k], tokens, budget.tokens)
    return Shown(packed.shown, packed.tokens, render_history([asked.sessions[n] for n in packed.shown]))


def _best_first(row: Mapping[str, Any], asked: HistoryQuestion, order: Order) -> Sequence[int]:
    if order is Order.BM25:
        return bm25_order(asked)
    similar = by_score(similarities(row, asked))
    if order is Order.SIMILARITY:
        return similar
    ranking = row.get("haystack_session_gen_rankings")
    if ranking is None or any(not 0 <= position < len(asked.sessions) for position in ranking):
        raise BadRow(f"question {asked.id}: haystack_session_gen_rankings are no positions of its history")
    return completed(ranking, similar)


def bm25_order(asked: HistoryQuestion) -> list[int]:
    """Every session, best first; equal ones, such as all that share no word with the question, by time."""
    if not asked.sessions:
        return []
    count, bags = _counted(tuple(map(embedded_text, asked.sessions)))
    return by_score(bm25(bags, count(asked.question)))


@lru_cache(maxsize=2)
def _counted(texts: tuple[str, ...]) -> tuple[WordCounter, list[Bag]]:
    """Kept for the next question, which is often about the same history."""
    count = WordCounter()
    return count, [count(text) for text in texts]


def full_order(asked: HistoryQuestion) -> list[int]:
    """The newest first: what a budget has to cut of a full context is its oldest part."""
    return list(reversed(range(len(asked.sessions))))


def similarities(row: Mapping[str, Any], asked: HistoryQuestion) -> Sequence[float | None]:
    return _one_each(row.get("similarities"), "similarities", asked)


def session_tokens(row: Mapping[str, Any], asked: HistoryQuestion) -> Sequence[int]:
    return _one_each(row.get("session_tokens"), "session_tokens", asked)


def _one_each(values: Sequence[T] | None, name: str, asked: HistoryQuestion) -> Sequence[T]:
    if values is None or len(values) != len(asked.sessions):
        given = "no" if values is None else str(len(values))
        raise BadRow(f"question {asked.id}: {given} {name} for {len(asked.sessions)} sessions; mem-agent "
                     "session-embedding writes them")
    return values
