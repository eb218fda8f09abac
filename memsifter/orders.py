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
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ..agents.recall import Bag, WordCounter, bm25
from ..sessions.packing import by_score, pack
from ..sessions.ranking import completed
from ..sessions.records import BadRow, HistoryQuestion
from ..sessions.wording import embedded_text, render_history
from .files import EMBED, MEMORY, RANKING, find_files

BM25, FULL = "bm25", "full"


class Method(NamedTuple):
    """A name in ``--methods``."""

    name: str
    order: str
    """BM25, FULL, or the kind of its files: EMBED, RANKING or MEMORY."""
    files: dict[str, Path]
    """That it reads, by data set and split."""


def methods(given: argparse.Namespace) -> list[Method]:
    """Those that are named, or the embedding model's order. Raises MissingFile where a name has no files."""
    found = []
    for name in dict.fromkeys(given.methods.split() or [given.embedding_model_name]):
        model, kind = name, EMBED if name == given.embedding_model_name else RANKING
        if name in (BM25, FULL):
            model, kind = given.embedding_model_name, EMBED
        elif any(Path(given.output_dir, name).glob(f"*_{MEMORY}.parquet")):
            kind = MEMORY
        order = name if name in (BM25, FULL) else kind
        found.append(Method(name, order, find_files(given, Path(given.output_dir, model), kind)))
    return found


def shown(
    row: Mapping[str, Any], asked: HistoryQuestion, order: str, top_k: int, tokens: int
) -> tuple[tuple[int, ...], int, str]:
    """Positions of the sessions that are shown, ascending; their tokens; and the history as the prompt shows it.

    FULL has no ``top_k``, and MEMORY is a text. Raises BadRow: a column of the earlier stage is not there, or of
    another history.
    """
    if order == MEMORY:
        memory = row.get("retrieved_memory")
        if not isinstance(memory, str):
            raise BadRow(f"question {asked.id}: no text in the column retrieved_memory")
        return (), 0, memory
    best = _best_first(row, asked, order)
    packed = pack(best if order == FULL else best[:top_k], of_sessions(row, "session_tokens", asked), tokens)
    return packed.shown, packed.tokens, render_history([asked.sessions[position] for position in packed.shown])


def _best_first(row: Mapping[str, Any], asked: HistoryQuestion, order: str) -> Sequence[int]:
    if order == BM25:
        return bm25_order(asked)
    if order == FULL:  # the newest first: what a budget has to cut of a full context is its oldest part
        return list(reversed(range(len(asked.sessions))))
    similar = by_score(of_sessions(row, "similarities", asked))
    return completed(row["haystack_session_gen_rankings"], similar) if order == RANKING else similar


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


def of_sessions(row: Mapping[str, Any], name: str, asked: HistoryQuestion) -> list[Any]:
    """A column of stage 1 with a value for each session. Raises BadRow."""
    values = row.get(name) or []
    if len(values) != len(asked.sessions):
        raise BadRow(f"question {asked.id}: {len(values)} {name} for {len(asked.sessions)} sessions; mem-agent "
                     "session-embedding writes them")
    return list(values)
