"""Questions, each with the vectors of its answers: first in, first out on both levels, float16.

A question is known by its id (``texts.question_id``); its vector only says which others are near. A full store of
10,000 questions with 100 vectors of 384 coordinates takes 770 MB.

Invariants:
- a question has 1 to ``values`` vectors; there are at most ``keys`` questions; what leaves is the oldest;
- a question that left and comes again is a new one.

Example with keys=2, values=2, added one after another as question:vector::

    a:1 b:2 a:3 a:4      a: 3 4   b: 2       1 was a's oldest
    c:5                  b: 2     c: 5       a was the oldest question, although it has the newest vectors but one
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .encoder import Vectors

_ID = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """Vectors to add to a question."""

    question: bytes
    key: Vectors
    """The question's vector, [dims]."""
    values: Vectors
    """[n, dims]"""


class Store:
    """At most ``keys`` questions with at most ``values`` vectors each."""

    def __init__(self, keys: int, values: int) -> None:
        self._keys, self._values = keys, values
        self._held: dict[bytes, deque[NDArray[np.float16]]] = {}
        """Vectors by question, oldest first on both levels."""
        self._key: dict[bytes, NDArray[np.float16]] = {}
        self._matrix: Vectors | None = None
        """All keys, [questions, dims]; None while they have to be put together anew."""

    @property
    def questions(self) -> int:
        return len(self._held)

    @property
    def vectors_held(self) -> int:
        return sum(map(len, self._held.values()))

    def nearest(self, questions: Sequence[bytes], keys: Vectors, k: int) -> list[list[bytes]]:
        """For each question the ``k`` nearest ones, fewer where fewer are there; one that is stored comes first."""
        return [self._nearest(question, key, k) for question, key in zip(questions, keys, strict=True)]

    def _nearest(self, question: bytes, key: Vectors, k: int) -> list[bytes]:
        own = [question] if question in self._held else []
        if len(own) == k or not self._held:
            return own
        if self._matrix is None:
            self._matrix = np.stack(list(self._key.values())).astype(np.float32)
        order = np.argsort(-(self._matrix @ key), kind="stable")[: k + 1]
        names = list(self._held)
        return (own + [name for name in map(names.__getitem__, order) if name != question])[:k]

    def vectors(self, questions: Sequence[bytes], dims: int) -> Vectors:
        """The vectors of these questions, [n, dims]; n = 0 for none."""
        rows = [row for question in questions for row in self._held[question]]
        return np.stack(rows).astype(np.float32) if rows else np.zeros((0, dims), np.float32)

    def add(self, entries: Sequence[Entry]) -> None:
        """Add all, one after another."""
        for entry in entries:
            if not len(entry.values):
                continue
            if entry.question not in self._held:
                if len(self._held) == self._keys:
                    oldest = next(iter(self._held))
                    del self._held[oldest], self._key[oldest]
                self._held[entry.question] = deque(maxlen=self._values)
                self._key[entry.question] = entry.key.astype(np.float16)
                self._matrix = None
            self._held[entry.question].extend(entry.values.astype(np.float16))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What it holds, oldest questions first: ids [n, 16], keys [n, dims], counts [n] and all vectors [m, dims]."""
        if not self._held:
            return {}
        return {
            "questions": np.frombuffer(b"".join(self._held), np.uint8).reshape(-1, _ID),
            "keys": np.stack(list(self._key.values())),
            "counts": np.array([len(rows) for rows in self._held.values()]),
            "values": np.stack([row for rows in self._held.values() for row in rows]),
        }

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Fill an empty store with ``arrays``. What is more than fits leaves as if it had been added."""
        if not arrays:
            return
        ends = np.cumsum(arrays["counts"])[:-1]
        parts = zip(arrays["questions"], arrays["keys"], np.split(arrays["values"], ends), strict=True)
        self.add([Entry(question.tobytes(), key, rows) for question, key, rows in parts])
