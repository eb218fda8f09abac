"""Finds the earlier memory of a trajectory that a query asks for.

One order everywhere, in training, evaluation and serving: the query of turn t is answered from the memories m_1 ..
m_(t-1), and m_t is added afterwards. The published training does the same. The published evaluation adds m_t first
(``recall_order=add_first``); written together with its query, m_t then often wins, and the prompt shows one memory
twice. For the same reason a memory equal to m_t is never the answer, unless by ``tfidf_tokens``.

``recall=`` names how the best match is found; ties go to the older memory, a query that matches nothing finds nothing:

tfidf      cosine of TF-IDF vectors, as published: idf(w) = ln((1 + n) / (1 + df(w))) + 1 over the n
           memories so far. Here of words without stop words; there of the model's tokens, and something always matched
bm25       Lucene's BM25, k1 = 1.5, b = 0.75
embedding  cosine of a sentence-transformers model's embeddings, above 0; few texts are below, so it nearly always
           finds one

``tfidf_tokens`` is the published retriever as it is (recurrent/impls/tf_idf_retriever.py): its words are the model's
tokens of the lower-cased text, m_t may be the answer, and where no word matches, something is found all the same.
Which memory wins among equals is left to the order of a Python set there, so to chance; here it is the newest. Among
empty memories alone nothing is found (the published evaluation then shows the word None, its training the marker).

Example, three memories and two queries::

    "Anna has the key", "the key is red", "Ben sleeps"
    who has a key?   -> "Anna has the key"        has and key, of which has is rarer
    blue door        -> nothing
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..rewards.intrinsic.encoder import make_encoder

_NO_BLANKS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Scripts without blanks between words: every character counts as a word."""
_WORD = re.compile(rf"[{_NO_BLANKS}]|[^\W{_NO_BLANKS}]+")
_STOP = frozenset(
    "a an and are as at be but by did do does for from had has have how if in into is it no not of on or such that "
    "the their then there these they this to was were what when where which who whom whose why will with".split()
)
K1, B = 1.5, 0.75
DIGITS = 12
"""Scores are rounded, so that texts of the same words are equal in whatever order they have them."""
_BLANK = "\u0120"
"""How byte-level vocabularies write a blank."""


def words(text: str) -> list[str]:
    """Lower-case words that say something."""
    return [word for word in _WORD.findall(text.lower()) if word not in _STOP]


class Bag(NamedTuple):
    """The different words of a text by their numbers, and how often each stands in it."""

    words: NDArray[np.int64]
    counts: NDArray[np.float64]


class WordCounter:
    """Makes bags of texts that are compared with each other: a word has the same number in all of them."""

    def __init__(self, split: Callable[[str], Iterable[str]] = words) -> None:
        self._split = split
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> Bag:
        counted = Counter(self._split(text))
        numbers = [self._numbers.setdefault(word, len(self._numbers)) for word in counted]
        return Bag(np.array(numbers, np.int64), np.array([*counted.values()], np.float64))


def tfidf(texts: Sequence[Bag], query: Bag) -> list[float]:
    """Each text's cosine with the query, times the query's length, which changes no order."""
    frequencies, asked = _frequencies(texts, query)
    idf = np.log((1 + len(texts)) / (1 + frequencies)) + 1
    asked = asked * idf
    weights = [text.counts * idf[text.words] for text in texts]
    lengths = [np.linalg.norm(weight) or 1.0 for weight in weights]
    return [round(float(weight @ asked[text.words] / length), DIGITS)
            for text, weight, length in zip(texts, weights, lengths, strict=True)]


def bm25(texts: Sequence[Bag], query: Bag) -> list[float]:
    """Each text's score for the query."""
    frequencies, asked = _frequencies(texts, query)
    asked = asked * np.log(1 + (len(texts) - frequencies + 0.5) / (frequencies + 0.5))
    lengths = [text.counts.sum() for text in texts]
    scales = K1 * (1 - B + B * np.array(lengths) / (np.mean(lengths) or 1))
    return [round(float((asked[text.words] * text.counts / (text.counts + scale)).sum()), DIGITS)
            for text, scale in zip(texts, scales, strict=True)]


def _frequencies(texts: Sequence[Bag], query: Bag) -> tuple[NDArray[Any], NDArray[Any]]:
    """Of each word of the texts: in how many of them it stands, and how often in the query."""
    frequencies = np.bincount(np.concatenate([text.words for text in texts]))
    known = query.words < len(frequencies)
    return frequencies, np.bincount(query.words[known], query.counts[known], minlength=len(frequencies))


encoder = cache(make_encoder)
"""The embedding model in a folder or of a hub id, once in a process."""


@dataclass(frozen=True, slots=True)
class History:
    """The memories of one trajectory so far, each once, with what ``describe`` makes of it; a value, never changed."""

    describe: Callable[[str], Any]
    score: Callable[[Sequence[Any], Any], list[float]]
    published: bool = False
    """Empty memories count, something is always found, and the newest among equals."""
    held: Mapping[str, Any] = field(default_factory=dict)

    def add(self, memory: str) -> History:
        if memory in self.held or not (memory or self.published):
            return self
        return replace(self, held={**self.held, memory: self.describe(memory)})

    def find(self, query: str, now: str | None = None) -> str | None:
        """The memory that matches best; ``now`` is the one that the next prompt shows anyway."""
        if not query or not any(self.held):
            return None
        scored = dict(zip(self.held, self.score(list(self.held.values()), self.describe(query)), strict=True))
        if self.published:
            return max(reversed(scored), key=scored.__getitem__)
        matching = [memory for memory, score in scored.items() if score > 0 and memory != now]
        return max(matching, key=scored.__getitem__, default=None)


def history_by(
    recall: str, model: str = "", trusted: bool = False, tokenize: Callable[[str], Sequence[str]] = str.split
) -> History:
    """The empty history of a trajectory.

    Args:
        model: of ``embedding``.
        tokenize: gives a text's tokens as the model's vocabulary writes them, for ``tfidf_tokens``.
    """
    if recall == "embedding":
        encode = encoder(model, "AGENT_ARGS: recall_model", trust_remote_code=trusted).encode
        return History(lambda text: encode([text])[0], lambda vectors, query: (np.stack(vectors) @ query).tolist())
    if recall == "tfidf_tokens":
        count = WordCounter(lambda text: [token.replace(_BLANK, "") for token in tokenize(text.lower())])
        return History(count, tfidf, published=True)
    return History(WordCounter(), {"tfidf": tfidf, "bm25": bm25}[recall])
