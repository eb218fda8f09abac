"""Which sessions stage 3 shows, from a row of an earlier stage.

``--methods`` names whose order counts; OUTPUT_DIR is ``--output-dir``::

    bge-m3       OUTPUT_DIR/bge-m3/locomo_test_embed.parquet      by similarity
    my-ranker    OUTPUT_DIR/my-ranker/locomo_test_ranking.parquet what it named, then by similarity
    bm25, full   stage 1's file of the embedding model           by words in common; the newest, without top_k
    a_mem        OUTPUT_DIR/a_mem/locomo_test_retrieved_memory.parquet
                                                                  its column retrieved_memory, shown as it is

The rule is that of training's reward and of the toolkit (``sessions.packing``): the first ``top_k`` of the order,
those of them that fit ``max_input_tokens``, shown in the order of time. Tokens are stage 1's counts of the sessions
alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from ...sessions.packing import by_score, pack
from ...sessions.ranking import completed
from ...sessions.records import HistoryQuestion
from ...sessions.render import render_history
from ...sessions.table import BadRow
from ..baselines import bm25_order, full_order
from ..stage_files import EMBED, MEMORY, RANKING, MissingStage, Part, has_files, parts
from ..stage_options import ChatOptions

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

    @property
    def kind(self) -> str:
        return _KINDS.get(self.order, EMBED)

    def folder(self, options: ChatOptions) -> str:
        """The model whose file it reads."""
        return options.embedding_model_name if self.order in _OF_STAGE_1 else self.name

    def source(self, part: Part, options: ChatOptions) -> Path:
        """Raises MissingStage."""
        return part.made(options.output_dir, self.kind, self.folder(options))

    def parts(self, options: ChatOptions) -> Sequence[Part]:
        return parts(options, self.kind, self.folder(options))


def methods(options: ChatOptions) -> list[Method]:
    """Those that are named, or the embedding model's order. Raises MissingStage where a name has no files."""
    names = options.methods.split() or [options.embedding_model_name]
    return [_method(name, options) for name in dict.fromkeys(names)]


def _method(name: str, options: ChatOptions) -> Method:
    if name in _OF_STAGE_1:
        return Method(name, Order(name))
    if name == options.embedding_model_name:
        return Method(name, Order.SIMILARITY)
    for order, kind in _KINDS.items():
        if has_files(options, kind, name):
            return Method(name, order)
    raise MissingStage(f"--methods {name}: {Path(options.output_dir, name)} has no file of these data sets and "
                       f"splits; mem-agent session-ranking --model-name {name} makes it")


@dataclass(frozen=True, slots=True)
class Shown:
    positions: tuple[int, ...]
    """In the history, ascending; none of an own memory's text."""
    tokens: int
    """Of the sessions, as stage 1 counted them."""
    history: str
    """As the prompt shows it."""


def shown(row: Mapping[str, Any], asked: HistoryQuestion, method: Method, options: ChatOptions) -> Shown:
    """Raises BadRow where a column of the earlier stage is not there, or of another history."""
    if method.order is Order.MEMORY:
        memory = row.get("retrieved_memory")
        if not isinstance(memory, str):
            raise BadRow(f"question {asked.id}: no text in the column retrieved_memory")
        return Shown((), 0, memory)
    tokens = session_tokens(row, asked)
    if method.order is Order.FULL:
        packed = pack(full_order(asked), tokens, options.full_input_tokens)
    else:
        packed = pack(_order(row, asked, method)[: options.top_k], tokens, options.max_input_tokens)
    return Shown(packed.shown, packed.tokens, render_history([asked.sessions[n] for n in packed.shown]))


def _order(row: Mapping[str, Any], asked: HistoryQuestion, method: Method) -> Sequence[int]:
    if method.order is Order.BM25:
        return bm25_order(asked)
    similar = by_score(similarities(row, asked))
    if method.order is Order.SIMILARITY:
        return similar
    ranking = row.get("haystack_session_gen_rankings")
    if ranking is None or any(not 0 <= position < len(asked.sessions) for position in ranking):
        raise BadRow(f"question {asked.id}: haystack_session_gen_rankings are no positions of its history")
    return completed(ranking, similar)


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
