"""MEM_IR: what an answer earns for being like earlier successes, unlike earlier failures, or unlike earlier texts.

Memory-R+, arXiv 2504.02273, as rewards of a whole rollout (``rewards.reward``). In all modes a batch is scored against
memory and windows as they were before it; only then is it remembered, in an order that its contents alone decide. So
neither a reward nor the state after depends on the order of the batch.

MEM_IR=knn and knn+: near the mean of earlier successes, and far from earlier failures, of the nearest questions.

    R_mem = exploit * E + explore * X        E, X: raw terms (Memory-R+, section 3) scaled by their windows

    raw E   -|e - c|, c the mean of the retrieved successes' vectors: at most 0, the nearer the greater
    raw X   1 - the greatest cosine of e and a retrieved failure's vector: 0 for one that is there, 1 at a right angle

e is the vector of a response. Every vector is compared by itself, in the order in which the stored ones are given, so
that the same vectors give the same bits whoever shares the batch. Example in two dimensions::

    successes (1, 0) (0, 1)     c = (0.5, 0.5)     e = (1, 0): E = -sqrt(0.5)
    failures  (1, 0) (0.6, 0.8)                    e = (0, 1): X = 1 - 0.8

Edges, each a rule:
- no success stored: E = 0; no failure stored: X = 0; nothing enters the window then;
- X = 0 before ``warmup`` failed questions are stored; its window fills meanwhile;
- an empty window, or one of equal values: 0; a raw value outside the window's range: cut to 0 or 1;
- fewer than k questions stored: all of them;
- an answer without a text: 0, and nothing is stored of it.

Invariant: parts are a function of (question, text) and the state before the rollout; the state after, of that and of
the rollout as a set. Equal answers of siblings are all stored, as published: what was given often weighs more.

MEM_IR=entropy and lexical: what an answer earns for being unlike the texts before, whatever was asked; no model.

    R = weight * raw scaled by the window        raw: against the newest texts, 1,000 or 50

entropy   bits of a letter drawn from the earlier texts and the new one together: Shannon, as Memory-R+'s baseline. A
          text that uses the rarer letters raises it.
lexical   edits that make one text's lines another's, over the longer one's number of lines; the mean over the earlier
          texts. It is the tree edit distance of the published baseline: there a text is a root whose children are its
          lines, and such trees differ by the edits of one sequence. Its random choice of lines is an even one here.

Example: lines a b c against a c d: drop b, add d, of 3 lines: 2/3.

Without earlier texts there is nothing to be unlike: 0, and nothing enters the window.
"""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat

from ...system.errors import ConfigError
from ..reward import RIGHT, Answered, Parts, Reward
from .encoder import Encoder, Vectors

Weight = Annotated[FiniteFloat, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
KEYS, VALUES = 10_000, 100
"""Questions of a store, and vectors of a question; the oldest one goes first."""
ENTROPY_TEXTS, LEXICAL_TEXTS, LEXICAL_LINES = 1_000, 50, 8
"""Earlier texts that count, and lines of a text, evenly spread over it."""
_EMBEDDED = 8_192
"""Vectors that are kept for texts that come again: 12 MB of 384 coordinates."""
_EPS = 1e-8
"""Memory-R+'s epsilon, which keeps the quotient finite."""
_TOLD_APART = 1e-6
"""Values closer than this differ by rounding alone."""


class Intrinsic(Reward):
    """A memory of a run, saved as one file of arrays. What counts of an answer is its reasoning; one without earns 0
    and is not remembered."""

    def __init__(self, settings: Any, weights: Mapping[str, float]) -> None:
        """``weights`` by term."""
        super().__init__(settings)
        self._weights = dict(weights)
        self.windows = {term: deque[float](maxlen=settings.window) for term in weights}
        """The newest raw values of each term in earlier batches."""

    def batch_parts(self, batch: Sequence[Answered]) -> Sequence[Parts]:
        raws = self.raw_terms(batch)
        weights = self.weights()
        parts = [{f"intrinsic_{term}": weights[term] * scaled(raw.get(term), window)
                  for term, window in self.windows.items()} for raw in raws]
        for i in sorted(range(len(batch)), key=lambda i: (_lot(batch[i]), batch[i].accuracy)):
            if batch[i].reasoning.strip():
                self.remember(batch[i])
            for term, value in raws[i].items():
                self.windows[term].append(value)
        return parts

    @abstractmethod
    def raw_terms(self, batch: Sequence[Answered]) -> Sequence[Mapping[str, float]]:
        """The terms of each answer before they are scaled, without those that have nothing to be compared with."""

    def weights(self) -> Mapping[str, float]:
        """By term, as memory is now."""
        return self._weights

    def remember(self, answer: Answered) -> None:
        """Keep an answer, whose reasoning is not blank."""

    def metrics(self) -> dict[str, float]:
        ends = {"least": min, "most": max}
        return {f"intrinsic/{term}_{name}": end(window)
                for term, window in self.windows.items() if window for name, end in ends.items()}

    @abstractmethod
    def file(self) -> str:
        """The saved memory's name; a memory of another mode or model has another."""

    @abstractmethod
    def arrays(self) -> dict[str, Any]:
        """What it remembers, by name."""

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Fill an empty memory with what ``arrays`` gave."""

    def save(self, folder: Path) -> None:
        windows: dict[str, Any] = {f"{term}.window": np.array(window) for term, window in self.windows.items()}
        np.savez(folder / self.file(), **windows, **self.arrays())

    def load(self, folder: Path) -> None:
        """Raises ConfigError: the memory is of another mode or model."""
        if not (folder / self.file()).is_file():
            raise ConfigError(f"{folder} has no {self.file()}: MEM_IR, or its model, was another; set it as it "
                              "was, or start a new SAVE_PATH")
        with np.load(folder / self.file()) as archive:
            arrays = dict(archive)
        for term, window in self.windows.items():
            window.extend(arrays[f"{term}.window"].tolist())
        self.restore(arrays)


def scaled(raw: float | None, window: Sequence[float]) -> float:
    """(raw - least) / (greatest - least + EPS), cut to [0, 1]; 0 for no value, or of an empty or even window.

    A window of 0.4 0.3 0.9: 0.6 -> (0.6 - 0.3) / (0.9 - 0.3) = 0.5, 1.1 -> 1, 0.1 -> 0.
    """
    least, most = min(window, default=0.0), max(window, default=0.0)
    if raw is None or most - least < _TOLD_APART:
        return 0.0
    return min(1.0, max(0.0, (raw - least) / (most - least + _EPS)))


def normalised(question: str) -> str:
    """The same for questions that differ in nothing but blanks and Unicode's forms of a letter."""
    return " ".join(unicodedata.normalize("NFKC", question).split())


def _lot(answer: Answered) -> bytes:
    """Sorts a batch as if by lot, but the same in every order of it."""
    return hashlib.blake2b(f"{normalised(answer.question)}\n{answer.reasoning}".encode()).digest()


# --- knn and knn+ -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KnnSettings:
    """MEM_IR=knn: successes only."""

    k: Count = 1
    """Nearest questions whose answers count."""
    model: str = "all-MiniLM-L6-v2"
    """A sentence-transformers folder or hub id, or ``hashing``, which needs no model."""
    exploit: Weight = 1.0
    """Weight of being like earlier successes."""
    window: Count = 100
    """Raw values of earlier batches that the next ones are scaled by."""


@dataclass(frozen=True)
class KnnPlusSettings(KnnSettings):
    """MEM_IR=knn+: successes and failures."""

    explore: Weight = 1.0
    """Weight of being unlike earlier failures."""
    warmup: Annotated[int, Field(ge=0)] = 500
    """Failed questions stored before exploration earns anything."""


class Episodic(Intrinsic):
    """The successes of a run, and with knn+ its failures."""

    def __init__(self, settings: KnnSettings, encoder: Encoder) -> None:
        explore = {"explore": settings.explore} if isinstance(settings, KnnPlusSettings) else {}
        super().__init__(settings, {"exploit": settings.exploit, **explore})
        self._encoder = encoder
        self._vector = lru_cache(maxsize=_EMBEDDED)(lambda text: encoder.encode([text])[0])
        self.stores = {kind: Store(KEYS, VALUES) for kind in (["success", "failure"] if explore else ["success"])}

    def raw_terms(self, batch: Sequence[Answered]) -> Sequence[Mapping[str, float]]:
        @cache
        def retrieved(question: str) -> list[Vectors]:
            key = self._vector(question)
            return [store.nearest(question, key, self.settings.k) for store in self.stores.values()]

        return [_terms(self._vector(answer.reasoning), *retrieved(normalised(answer.question)))
                if answer.reasoning.strip() else {} for answer in batch]

    def weights(self) -> Mapping[str, float]:
        cold = "failure" in self.stores and len(self.stores["failure"].held) < self.settings.warmup
        return self._weights | ({"explore": 0.0} if cold else {})

    def remember(self, answer: Answered) -> None:
        kind = "success" if answer.accuracy >= RIGHT else "failure"
        if kind in self.stores:
            question = normalised(answer.question)
            self.stores[kind].add(question, self._vector(question), self._vector(answer.reasoning)[None])

    def metrics(self) -> dict[str, float]:
        shown = super().metrics()
        for kind, store in self.stores.items():
            shown[f"intrinsic/{kind}_questions"] = len(store.held)
            shown[f"intrinsic/{kind}_vectors"] = sum(len(vectors) for _, vectors in store.held.values())
        return shown

    def file(self) -> str:
        return f"{'knn+' if 'failure' in self.stores else 'knn'}-{self._encoder.fingerprint}.npz"

    def arrays(self) -> dict[str, Any]:
        return {f"{kind}.{part}": array
                for kind, store in self.stores.items() for part, array in store.arrays().items()}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for kind, store in self.stores.items():
            store.restore({name.removeprefix(f"{kind}."): array for name, array in arrays.items()})


def _terms(vector: Vectors, success: Vectors, failure: Vectors | None = None) -> dict[str, float]:
    """Of the vector of a response, [dims], and those retrieved, [n, dims]."""
    terms = {}
    if len(success):
        middle = success.mean(axis=0, dtype=np.float64).astype(np.float32)
        terms["exploit"] = -float(np.linalg.norm(vector - middle))
    if failure is not None and len(failure):
        cosines = failure @ vector / np.linalg.norm(failure, axis=1)
        terms["explore"] = 1.0 - float(np.max(cosines)) / float(np.linalg.norm(vector))
    return terms


class Store:
    """At most ``keys`` questions with at most ``values`` vectors each, first in, first out on both levels.

    A question that left and comes again is a new one. A full store of 10,000 questions with 100 vectors of 384
    coordinates takes 770 MB in float16. Example with keys=2, values=2, added one after another as question:vector::

        a:1 b:2 a:3 a:4      a: 3 4   b: 2       1 was a's oldest
        c:5                  b: 2     c: 5       a was the oldest question, although it has the newest vectors but one
    """

    def __init__(self, keys: int, values: int) -> None:
        self._keys, self._values = keys, values
        self.held: dict[str, tuple[NDArray[np.float16], deque[NDArray[np.float16]]]] = {}
        """By question (``normalised``): its own vector, which says what others are near, and those of its answers."""

    def nearest(self, question: str, key: Vectors, k: int) -> Vectors:
        """The vectors, [n, dims], of the ``k`` nearest questions; the question itself, if stored, is the nearest."""
        found = [question] if question in self.held else []
        if self.held and len(found) < k:
            names = list(self.held)
            keys = np.stack([key for key, _ in self.held.values()]).astype(np.float32)
            order = np.argsort(-(keys @ key), kind="stable")[: k + 1]
            found += [names[i] for i in order if names[i] != question]
        rows = [row for name in found[:k] for row in self.held[name][1]]
        return np.array(rows, np.float32).reshape(-1, len(key))

    def add(self, question: str, key: NDArray[Any], values: NDArray[Any]) -> None:
        """Add vectors, [n, dims], to a question whose own vector is ``key``."""
        if question not in self.held:
            if len(self.held) == self._keys:
                del self.held[next(iter(self.held))]
            self.held[question] = (key.astype(np.float16), deque(maxlen=self._values))
        self.held[question][1].extend(values.astype(np.float16))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What it holds, oldest questions first: the questions as JSON, and of each its vectors, its own one first:
        their ends [n] in [m, dims]."""
        if not self.held:
            return {}
        rows = [np.stack([key, *vectors]) for key, vectors in self.held.values()]
        return {"questions": np.array(json.dumps([*self.held])), "ends": np.cumsum(list(map(len, rows))),
                "rows": np.concatenate(rows)}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Fill an empty store with ``arrays``. What is more than fits leaves as if it had been added."""
        if "questions" in arrays:
            parts = np.split(arrays["rows"], arrays["ends"][:-1])
            for question, (key, *vectors) in zip(json.loads(str(arrays["questions"])), parts, strict=True):
                self.add(question, key, np.array(vectors))


# --- entropy and lexical ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EntropySettings:
    """MEM_IR=entropy."""

    weight: Weight = 1.0
    window: Count = 1_000


@dataclass(frozen=True)
class LexicalSettings(EntropySettings):
    """MEM_IR=lexical."""

    weight: Weight = 0.1
    window: Count = 100


MODES: dict[str, type[KnnSettings | EntropySettings]] = {
    "knn": KnnSettings, "knn+": KnnPlusSettings, "entropy": EntropySettings, "lexical": LexicalSettings}
"""MEM_IR's settings."""


class TextReward(Intrinsic):
    """The newest texts of a run; its settings say which of the two modes it is."""

    def __init__(self, settings: EntropySettings) -> None:
        self._lexical = isinstance(settings, LexicalSettings)
        self._mode, most = ("lexical", LEXICAL_TEXTS) if self._lexical else ("entropy", ENTROPY_TEXTS)
        super().__init__(settings, {self._mode: settings.weight})
        self._texts: deque[str] = deque(maxlen=most)

    def raw_terms(self, batch: Sequence[Answered]) -> Sequence[Mapping[str, float]]:
        texts = {answer.reasoning for answer in batch if answer.reasoning.strip()} if self._texts else set()
        if self._lexical:
            kept = [chosen_lines(text) for text in self._texts]
            raw = {text: fmean(lines_apart(chosen_lines(text), one) for one in kept) for text in texts}
        else:
            before = Counter(" ".join(self._texts))
            raw = {text: entropy(before + Counter(f" {text}")) for text in texts}
        return [{self._mode: raw[one.reasoning]} if one.reasoning in raw else {} for one in batch]

    def remember(self, answer: Answered) -> None:
        self._texts.append(answer.reasoning)

    def metrics(self) -> dict[str, float]:
        return {"intrinsic/texts": float(len(self._texts)), **super().metrics()}

    def file(self) -> str:
        return f"{self._mode}.npz"

    def arrays(self) -> dict[str, Any]:
        return {"texts": np.array(json.dumps(list(self._texts)))}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._texts.extend(json.loads(str(arrays["texts"])))


def entropy(counts: Mapping[str, int]) -> float:
    """In bits; 0 of nothing. Summed exactly, so that the order of the letters plays no part."""
    total = sum(counts.values())
    return -math.fsum(n / total * math.log2(n / total) for n in counts.values()) if total else 0.0


def chosen_lines(text: str, most: int = LEXICAL_LINES) -> tuple[str, ...]:
    """At most ``most`` of its lines that are not blank, evenly spread from the first to the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = np.linspace(0, len(lines) - 1, min(most, len(lines))).round().astype(int)
    return tuple(lines[place] for place in chosen)


def lines_apart(one: Sequence[str], other: Sequence[str]) -> float:
    """Lines to add, drop or change, over those of the longer text; 0 to 1."""
    row = list(range(len(other) + 1))
    for i, line in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, against in enumerate(other, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (line != against))
    return row[-1] / max(len(one), len(other), 1)
