"""Orders of sessions that no trained model gives: BM25, and the whole history.

``bm25_order``   every session, best first, by Lucene's BM25 (k1 1.5, b 0.75) of its turns and speakers' names; equal
                 ones, such as all that share no word with the question, in the order of time. Chinese counts by
                 characters, English without stop words (``agents/recall.py``)
``full_order``   every session, the newest first: what a budget has to cut of a full context is its oldest part

Both give positions in the history, for ``sessions.packing.pack``.
"""

from __future__ import annotations

from functools import lru_cache

from ..agents.recall import Bag, WordCounter, bm25
from ..sessions.packing import by_score
from ..sessions.records import HistoryQuestion
from ..sessions.render import embedded_text


def bm25_order(asked: HistoryQuestion) -> list[int]:
    if not asked.sessions:
        return []
    count, bags = _counted(tuple(map(embedded_text, asked.sessions)))
    return by_score(bm25(bags, count(asked.question)))


def full_order(asked: HistoryQuestion) -> list[int]:
    return list(reversed(range(len(asked.sessions))))


@lru_cache(maxsize=2)
def _counted(texts: tuple[str, ...]) -> tuple[WordCounter, list[Bag]]:
    """Of the history before, too: questions about one history follow each other."""
    count = WordCounter()
    return count, [count(text) for text in texts]
