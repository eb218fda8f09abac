"""Finds the earlier memory of a trajectory that a query asks for; every memory is kept as the ids that were sampled.

One order everywhere, in training, evaluation and serving: the query of turn t is answered from the memories m_1 ..
m_(t-1), and m_t is added afterwards. The published training does the same. The published evaluation adds m_t first
(MEM_RECALL_ORDER=add_first); written together with its query, m_t then often wins, and the prompt shows one memory
twice. For the same reason a memory equal to m_t is never the answer, unless by ``tfidf_tokens``.

Best match by ``MEM_RECALL``, ties to the older memory; a query that matches nothing finds nothing:

tfidf      cosine of TF-IDF vectors, as published: idf(w) = ln((1 + n) / (1 + df(w))) + 1 over the n
           memories so far. Here of words without stop words; there of the model's tokens, and something always matched
bm25       Lucene's BM25, k1 = 1.5, b = 0.75
embedding  cosine of mean-pooled embeddings of a model, above 0; few texts are below, so it nearly always finds one

``tfidf_tokens`` is the published retriever as it is (recurrent/impls/tf_idf_retriever.py): its words are the model's
tokens of the lower-cased text, m_t may be the answer, and where no word matches, something is found all the same.
Which memory wins among equals is left to the order of a Python set there, so to chance; here it is the newest. Among
empty memories alone nothing is found (the published evaluation then shows the word None, its training the marker).

scikit-learn fits 700 memories anew in 625 ms, and idf changes with every memory; so the counts of a memory's words are
taken once and only the weights are computed per query. The tests hold the order to that of
scikit-learn and of bm25s.

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
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..config import Config, ConfigError

Ids = tuple[int, ...]
Floats = NDArray[np.floating]

_NO_BLANKS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Scripts without blanks between words: every character counts as a word."""
_WORD = re.compile(rf"[{_NO_BLANKS}]|[^\W{_NO_BLANKS}]+")
_STOP = frozenset(
    "a an and are as at be but by did do does for from had has have how if in into is it no not of on or such that "
    "the their then there these they this to was were what when where which who whom whose why will with".split()
)
K1, B = 1.5, 0.75
_BLANK = "\u0120"
"""How byte-level vocabularies write a blank; a token of it alone is a word of no letters."""
_NO_TOKEN = "\0none"


class History(Protocol):
    """The memories of one trajectory so far; a value, never changed."""

    def add(self, memory: Ids, text: str) -> History:
        """The history with one memory more; one that is there already, or empty, changes nothing."""

    def find(self, query: str, now: Ids = ()) -> Ids | None:
        """The memory that matches best, other than ``now``; None where none matches."""


def histories(config: Config, tokenize: Callable[[str], Sequence[str]] = str.split) -> Callable[[], History]:
    """Makes the empty history of each trajectory; MEM_RECALL_MODEL is a folder. Raises ConfigError.

    ``tokenize`` gives a text's tokens as the model's vocabulary writes them.
    """
    if config.mem_recall == "tfidf_tokens":
        return lambda: TokenHistory(tokenize)
    if config.mem_recall == "embedding":
        from .embedding import Embedding

        try:
            model = Embedding(Path(config.mem_recall_model), trust_remote_code=config.trust_remote_code)
        except ConfigError as error:
            raise ConfigError(f"MEM_RECALL_MODEL={error}") from error
        return lambda: VectorHistory(lambda text: model.embed([text])[0])
    score = {"tfidf": tfidf, "bm25": bm25}[config.mem_recall]
    return lambda: WordHistory(score)


def words(text: str) -> list[str]:
    """Lower-case words that say something."""
    return [word for word in _WORD.findall(text.lower()) if word not in _STOP]


# --- by words -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counts:
    """How often each word stands in each memory: ``counts[i]`` times word ``words[i]``, memory after memory.

    No memory is without an entry (``np.add.reduceat`` would give it its neighbour's).
    """

    words: NDArray[np.int64]
    counts: NDArray[np.float32]
    starts: NDArray[np.int64]
    """The first entry of each memory."""
    frequencies: NDArray[np.int32]
    """In how many memories each word of the vocabulary stands."""

    @property
    def vocabulary(self) -> int:
        return len(self.frequencies)

    def with_memory(self, word_ids: Sequence[int], counts: Sequence[int], vocabulary: int) -> Counts:
        """``word_ids`` are different words of a vocabulary that may have grown."""
        ids = np.asarray(word_ids, np.int64)
        frequencies = np.zeros(vocabulary, np.int32)
        frequencies[: self.vocabulary] = self.frequencies
        frequencies[ids] += 1
        return Counts(
            np.concatenate([self.words, ids]),
            np.concatenate([self.counts, np.asarray(counts, np.float32)]),
            np.append(self.starts, len(self.words)),
            frequencies,
        )

    def sums(self, values: Floats) -> Floats:
        """Of all entries' values, for each memory."""
        return np.add.reduceat(values, self.starts)

    def sums_of(self, entries: NDArray[np.int64], values: Floats) -> Floats:
        """Of the values of some entries, for each memory."""
        return np.bincount(self.memories_of(entries), values, minlength=len(self.starts)).astype(np.float64)

    def memories_of(self, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self.starts, entries, side="right") - 1


def count_words(texts: Iterable[str]) -> tuple[Counts, dict[str, int]]:
    """The counts of many texts at once, and the numbers of their words."""
    counted = [Counter(words(text)) or {"": 1} for text in texts]
    numbers: dict[str, int] = {}
    ids = np.array([numbers.setdefault(word, len(numbers)) for each in counted for word in each], np.int64)
    counts = np.array([count for each in counted for count in each.values()], np.float32)
    starts = np.cumsum([0, *map(len, counted)], dtype=np.int64)[:-1]
    return Counts(ids, counts, starts, np.bincount(ids, minlength=len(numbers)).astype(np.int32)), numbers


def count_query(query: str, numbers: Mapping[str, int], vocabulary: int) -> Floats:
    """How often each of the first ``vocabulary`` words stands in the query."""
    asked = np.zeros(vocabulary, np.float32)
    for word in words(query):
        if numbers.get(word, vocabulary) < vocabulary:
            asked[numbers[word]] += 1
    return asked


NO_COUNTS = Counts(np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.int64), np.empty(0, np.int32))
Score = Callable[[Counts, Floats], Floats]
"""The score of each memory for a query, given as its count of each word of the vocabulary."""


def tfidf(held: Counts, query: Floats) -> Floats:
    """The cosine but for the query's own length, which changes no order."""
    idf = (np.log((1 + len(held.starts)) / (1 + held.frequencies)) + 1).astype(np.float32)
    weights = held.counts * idf.take(held.words)
    asked = np.flatnonzero((query > 0).take(held.words))
    products = weights[asked] * (query * idf)[held.words[asked]]
    return held.sums_of(asked, products) / np.sqrt(held.sums(weights * weights))


def bm25(held: Counts, query: Floats) -> Floats:
    idf = np.log(1 + (len(held.starts) - held.frequencies + 0.5) / (held.frequencies + 0.5))
    lengths = held.sums(held.counts)
    scale = K1 * (1 - B + B * lengths / lengths.mean())
    asked = np.flatnonzero((query > 0).take(held.words))
    counts, word_ids = held.counts[asked], held.words[asked]
    return held.sums_of(asked, (query * idf)[word_ids] * counts / (counts + scale[held.memories_of(asked)]))


@dataclass(frozen=True, slots=True)
class WordHistory:
    score: Score
    places: dict[Ids, int] = field(default_factory=dict)
    held: Counts = NO_COUNTS
    numbers: dict[str, int] = field(default_factory=dict)
    """Of the words; shared along a trajectory, and a number once given stays, so a history never sees it change."""

    def add(self, memory: Ids, text: str) -> WordHistory:
        if not memory or memory in self.places:
            return self
        counted = Counter(words(text)) or {"": 1}
        ids = [self.numbers.setdefault(word, len(self.numbers)) for word in counted]
        held = self.held.with_memory(ids, list(counted.values()), len(self.numbers))
        return replace(self, places=self.places | {memory: len(self.places)}, held=held)

    def find(self, query: str, now: Ids = ()) -> Ids | None:
        asked = count_query(query, self.numbers, self.held.vocabulary)
        return _best(self.places, self.score(self.held, asked), now) if asked.any() else None


@dataclass(frozen=True, slots=True)
class TokenHistory:
    """Published TF-IDF over the model's own tokens: every text once, empty ones too; something is always found."""

    tokenize: Callable[[str], Sequence[str]]
    memories: dict[str, Ids] = field(default_factory=dict)
    held: Counts = NO_COUNTS
    numbers: dict[str, int] = field(default_factory=dict)
    """Of the tokens; shared along a trajectory, as in ``WordHistory``."""

    def add(self, memory: Ids, text: str) -> TokenHistory:
        if text in self.memories:
            return self
        counted = Counter(self._tokens(text)) or {_NO_TOKEN: 1}
        ids = [self.numbers.setdefault(token, len(self.numbers)) for token in counted]
        held = self.held.with_memory(ids, list(counted.values()), len(self.numbers))
        return replace(self, memories=self.memories | {text: memory}, held=held)

    def find(self, query: str, now: Ids = ()) -> Ids | None:
        if not query or not any(self.memories):
            return None
        asked = np.zeros(self.held.vocabulary, np.float32)
        for token in self._tokens(query):
            if self.numbers.get(token, self.held.vocabulary) < self.held.vocabulary:
                asked[self.numbers[token]] += 1
        scores = tfidf(self.held, asked)
        newest = len(scores) - 1 - int(np.argmax(scores[::-1]))
        return next(islice(self.memories.values(), newest, None))

    def _tokens(self, text: str) -> list[str]:
        return [token.replace(_BLANK, "") for token in self.tokenize(text.lower())]


# --- by meaning ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VectorHistory:
    embed: Callable[[str], NDArray[np.float32]]
    """One vector of length 1."""
    places: dict[Ids, int] = field(default_factory=dict)
    vectors: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32))

    def add(self, memory: Ids, text: str) -> VectorHistory:
        if not memory or memory in self.places:
            return self
        vector = self.embed(text)[np.newaxis]
        vectors = np.concatenate([self.vectors, vector]) if self.places else vector
        return replace(self, places=self.places | {memory: len(self.places)}, vectors=vectors)

    def find(self, query: str, now: Ids = ()) -> Ids | None:
        return _best(self.places, self.vectors @ self.embed(query), now) if self.places else None


def _best(places: dict[Ids, int], scores: Floats, now: Ids) -> Ids | None:
    if now in places:
        scores[places[now]] = 0
    place = int(np.argmax(scores))
    return next(islice(places, place, None)) if scores[place] > 0 else None
