"""Which passages of a document a question needs, by words or by an embedding model.

Passages are what ``Document <i>:`` lines begin, or ``WORDS`` words where the text has no such lines. Ranked by BM25
(Lucene's form, English stop words dropped) or by the cosine of mean-pooled embeddings, best first, ties by position::

    "Document 1:\nAnna has the red key.\n\nDocument 2:\nBen sleeps."      Who has the key?  -> [0, 1]

Invariant: as many as asked for, or all; every index once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..agents.embedding import Embedding
from ..agents.recall import bm25, count_query, count_words
from ..checkpoints.hf_model import local_folder
from ..config import Config

WORDS = 150
_HEADING = re.compile(r"^Document \d+:", re.MULTILINE)
_WORDS = re.compile(rf"(?:\S+\s*){{1,{WORDS}}}")


class Retriever(Protocol):
    def rank(self, question: str, passages: Sequence[str], k: int) -> list[int]:
        """Indices of the ``k`` best passages, best first."""


def split_passages(document: str) -> list[str]:
    """The document's passages in order; nothing but blanks at their ends is lost."""
    starts = [match.start() for match in _HEADING.finditer(document)]
    if not starts:
        return [match.group().strip() for match in _WORDS.finditer(document)]
    bounds = [0, *starts, len(document)]
    parts = [document[a:b].strip() for a, b in pairwise(bounds)]
    return [part for part in parts if part]


def retriever_for(config: Config) -> Retriever:
    """Raises ConfigError where the embedding model cannot be found."""
    if config.eval_retriever == "bm25":
        return Bm25()
    folder = local_folder(config.eval_embedding, "EVAL_EMBEDDING")
    return ByMeaning(Embedding(folder))


class Bm25:
    """Words alone, as ``agents.recall`` scores memories."""

    def rank(self, question: str, passages: Sequence[str], k: int) -> list[int]:
        held, numbers = count_words(passages)
        return best(bm25(held, count_query(question, numbers, held.vocabulary)), k)


@dataclass(frozen=True)
class ByMeaning:
    """The cosine of embeddings."""

    embedding: Embedding

    def rank(self, question: str, passages: Sequence[str], k: int) -> list[int]:
        (asked,) = self.embedding.embed([question])
        return best(self.embedding.embed(passages) @ asked, k)


def best(scores: NDArray[np.floating], k: int) -> list[int]:
    """Indices of the ``k`` highest scores, the earlier one first where they are equal."""
    return [int(i) for i in np.argsort(-scores, kind="stable")[:k]]
