"""MEM_IR=knn and knn+: near the mean of earlier successes, and far from earlier failures, of the nearest questions.

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
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat

from ...system.errors import ConfigError
from ..reward import Answered, Parts
from .encoder import Encoder, Vectors
from .memory import ID_BYTES, Count, Intrinsic, IntrinsicSettings, Weight, normalised, question_id

FILE = "episodic.npz"
_EMBEDDED = 8_192
"""Vectors that are kept for texts that come again: 12 MB of 384 coordinates."""


@dataclass(frozen=True)
class KnnSettings(IntrinsicSettings):
    """MEM_IR=knn: successes only."""

    k: Count = 1
    """Nearest questions whose answers count."""
    model: str = "all-MiniLM-L6-v2"
    """A sentence-transformers folder or hub id, or ``hashing``, which needs no model."""
    exploit: Weight = 1.0
    """Weight of being like earlier successes."""
    keys: Count = 10_000
    """Questions of a store; the oldest one goes first."""
    values: Count = 100
    """Vectors of a question; the oldest one goes first."""
    success: FiniteFloat = 0.5
    """An answer worth at least this is a success, any other a failure."""


@dataclass(frozen=True)
class KnnPlusSettings(KnnSettings):
    """MEM_IR=knn+: successes and failures."""

    explore: Weight = 1.0
    """Weight of being unlike earlier failures."""
    warmup: Annotated[int, Field(ge=0)] = 500
    """Failed questions stored before exploration earns anything."""


class Episodic(Intrinsic):
    """The successes of a run, and with knn+ its failures."""

    Settings = KnnSettings

    def __init__(self, settings: KnnSettings, encoder: Encoder) -> None:
        self._plus = isinstance(settings, KnnPlusSettings)
        explore = {"explore": settings.explore} if isinstance(settings, KnnPlusSettings) else {}
        super().__init__(settings, {"exploit": settings.exploit, **explore})
        self._encoder = encoder
        self._vector = lru_cache(maxsize=_EMBEDDED)(lambda text: encoder.encode([text])[0])
        self._thread = ThreadPoolExecutor(1)
        kinds = ["success", "failure"] if self._plus else ["success"]
        self.stores = {kind: Store(settings.keys, settings.values) for kind in kinds}

    async def parts(self, answer: Answered) -> Parts:
        """The answer's own, while its texts are embedded beside the rollout."""
        if text := self.text_of(answer):
            await asyncio.wrap_future(self._thread.submit(self._embedded, answer, text))
        return answer.parts

    def _embedded(self, answer: Answered, text: str) -> tuple[Vectors, Vectors]:
        """The vectors of the question and of the text, [dims]."""
        return self._vector(normalised(answer.question)), self._vector(text)

    def raw_terms(self, batch: Sequence[Answered], texts: Sequence[str]) -> Sequence[Mapping[str, float]]:
        retrieved: dict[bytes, list[Vectors]] = {}
        raws: list[Mapping[str, float]] = []
        for answer, text in zip(batch, texts, strict=True):
            if not text:
                raws.append({})
                continue
            question = question_id(answer.question)
            key, vector = self._thread.submit(self._embedded, answer, text).result()
            if question not in retrieved:
                retrieved[question] = [store.nearest(question, key, self.settings.k) for store in self.stores.values()]
            raws.append(_terms(vector, *retrieved[question]))
        return raws

    def weights(self) -> Mapping[str, float]:
        warm = not self._plus or len(self.stores["failure"].held) >= self.settings.warmup
        return super().weights() if warm else {**super().weights(), "explore": 0.0}

    def remember(self, answer: Answered, text: str) -> None:
        kind = "success" if answer.accuracy >= self.settings.success else "failure"
        if kind in self.stores:
            key, vector = self._thread.submit(self._embedded, answer, text).result()
            self.stores[kind].add(question_id(answer.question), key, vector[None])

    def metrics(self) -> dict[str, float]:
        shown = super().metrics()
        for kind, store in self.stores.items():
            shown[f"intrinsic/{kind}_questions"] = float(len(store.held))
            shown[f"intrinsic/{kind}_vectors"] = float(sum(len(vectors) for _, vectors in store.held.values()))
        return shown

    def save(self, folder: Path) -> None:
        arrays: dict[str, Any] = {f"{term}.window": np.array(window) for term, window in self.windows.items()}
        for kind, store in self.stores.items():
            arrays |= {f"{kind}.{part}": array for part, array in store.arrays().items()}
        np.savez(folder / FILE, about=np.array(json.dumps(self._about())), **arrays)

    def _about(self) -> dict[str, str]:
        """What a saved memory must share with this one."""
        return {"model": self._encoder.fingerprint, "mode": "knn+" if self._plus else "knn",
                "text": self.settings.text}

    def load(self, folder: Path) -> None:
        """Raises ConfigError: the memory is of another model, mode or text."""
        with np.load(folder / FILE) as archive:
            arrays = dict(archive)
        about = json.loads(str(arrays["about"]))
        if about != self._about():
            raise ConfigError(f"{folder / FILE}: a memory of {about}, MEM_IR and MEM_IR_ARGS are {self._about()}; set "
                              "them as they were, or start a new SAVE_PATH")
        for term, window in self.windows.items():
            window.extend(arrays[f"{term}.window"].tolist())
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
        self.held: dict[bytes, tuple[NDArray[np.float16], deque[NDArray[np.float16]]]] = {}
        """A question's own vector, which says what others are near, and those of its answers, by ``question_id``."""

    def nearest(self, question: bytes, key: Vectors, k: int) -> Vectors:
        """The vectors, [n, dims], of the ``k`` nearest questions; the question itself, if stored, is the nearest."""
        found = [question] if question in self.held else []
        if self.held and len(found) < k:
            names = list(self.held)
            keys = np.stack([key for key, _ in self.held.values()]).astype(np.float32)
            order = np.argsort(-(keys @ key), kind="stable")[: k + 1]
            found += [names[i] for i in order if names[i] != question]
        rows = [row for name in found[:k] for row in self.held[name][1]]
        return np.array(rows, np.float32).reshape(-1, len(key))

    def add(self, question: bytes, key: NDArray[Any], values: NDArray[Any]) -> None:
        """Add vectors, [n, dims], to a question whose own vector is ``key``."""
        if question not in self.held:
            if len(self.held) == self._keys:
                del self.held[next(iter(self.held))]
            self.held[question] = (key.astype(np.float16), deque(maxlen=self._values))
        self.held[question][1].extend(values.astype(np.float16))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What it holds, oldest questions first: ids [n, 16], keys [n, dims], counts [n] and all vectors [m, dims]."""
        if not self.held:
            return {}
        return {
            "questions": np.frombuffer(b"".join(self.held), np.uint8).reshape(-1, ID_BYTES),
            "keys": np.stack([key for key, _ in self.held.values()]),
            "counts": np.array([len(vectors) for _, vectors in self.held.values()]),
            "values": np.stack([row for _, vectors in self.held.values() for row in vectors]),
        }

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Fill an empty store with ``arrays``. What is more than fits leaves as if it had been added."""
        if "questions" in arrays:
            parts = np.split(arrays["values"], np.cumsum(arrays["counts"])[:-1])
            for question, key, rows in zip(arrays["questions"], arrays["keys"], parts, strict=True):
                self.add(question.tobytes(), key, rows)
