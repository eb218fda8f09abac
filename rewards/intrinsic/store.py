"""Questions, each with the vectors of its answers: first in, first out on both levels, all of it in codes.

A question is known by its id (``texts.question_id``), its vector only says which others are near. Room for all
``keys * values`` vectors is asked for at once; the system gives it piece by piece, as questions come.

Invariants:
- a question has 1 to ``values`` vectors; there are at most ``keys`` questions; what leaves is the oldest;
- ``vectors`` are read oldest first, wherever they lie, so a store that was saved and restored gives the same bits;
- a question that left and comes again is a new one.

Example with keys=2, values=2, added one after another as question:vector::

    a:1 b:2 a:3 a:4      a: 3 4   b: 2       1 was a's oldest
    c:5                  b: 2     c: 5       a was the oldest question, although it has the newest vectors but one
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import faiss
import numpy as np
from numpy.typing import NDArray

from .codes import CodeRows, Codes, Vectors, set_range

_KEY_BITS = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """Vectors to add to a question; all rotated (``codes.rotated``)."""

    question: bytes
    key: Vectors
    """The question's vector, [dims]."""
    values: Vectors
    """[n, dims]"""


@dataclass(frozen=True)
class Content:
    """A store as it is saved, oldest questions first."""

    questions: NDArray[np.uint8]
    """[n, 16]"""
    keys: CodeRows
    counts: NDArray[np.int64]
    """Vectors of each question."""
    values: Iterator[CodeRows]
    """Of one question after another, oldest first."""


class Store:
    """At most ``keys`` questions with at most ``values`` vectors of ``dims`` coordinates each."""

    def __init__(self, dims: int, keys: int, values: int, bits: int) -> None:
        self.codes = Codes(dims, bits)
        self._index = faiss.IndexScalarQuantizer(
            dims, faiss.ScalarQuantizer.QT_8bit_uniform, faiss.METRIC_INNER_PRODUCT
        )
        set_range(self._index.sq, _KEY_BITS)
        self._index.is_trained = True
        self._rings = np.zeros((keys, values, self.codes.size), np.uint8)
        self._written = np.zeros(keys, np.int64)
        """Vectors that each ring was ever given since its question came."""
        self._serial: dict[bytes, int] = {}
        """Question to its number since the start; the ring of number s is s % keys. Oldest first."""
        self._first = 0
        """Number of the oldest question, which is row 0 of the index."""

    @property
    def questions(self) -> int:
        return len(self._serial)

    @property
    def vectors_held(self) -> int:
        return int(np.minimum(self._written, self._rings.shape[1]).sum())

    # --- reading --------------------------------------------------------------------------------------------------

    def nearest(self, questions: Sequence[bytes], keys: Vectors, k: int) -> list[list[int]]:
        """For each question the numbers of the ``k`` nearest ones, fewer where fewer are there.

        A question that is stored is its own nearest, whatever its code says.
        """
        own = [[self._serial[question]] if question in self._serial else [] for question in questions]
        asked = [i for i, mine in enumerate(own) if len(mine) < k]
        if asked and self._serial:
            _, rows = self._index.search(np.ascontiguousarray(keys[asked]), min(k, self.questions))
            for i, some in zip(asked, rows, strict=True):
                others = [self._first + int(row) for row in some if row >= 0]
                own[i] = (own[i] + [number for number in others if number not in own[i]])[:k]
        return own

    def vectors(self, numbers: Sequence[int]) -> Vectors:
        """The decoded vectors of these questions, [n, dims]; n = 0 for none."""
        return self.codes.decode(np.concatenate([np.zeros((0, self.codes.size), np.uint8), *map(self._rows, numbers)]))

    def _rows(self, number: int) -> CodeRows:
        """The codes of a question, oldest first."""
        ring = self._rings[number % len(self._rings)]
        written = int(self._written[number % len(self._rings)])
        held = min(written, len(ring))
        return ring[np.arange(written - held, written) % len(ring)]

    # --- writing --------------------------------------------------------------------------------------------------

    def add(self, entries: Sequence[Entry]) -> None:
        """Add all, one after another."""
        entries = [entry for entry in entries if len(entry.values)]
        if not entries:
            return
        codes = self.codes.encode(np.concatenate([entry.values for entry in entries]))
        ends = np.cumsum([len(entry.values) for entry in entries])
        fresh: list[Vectors] = []
        for entry, rows in zip(entries, np.split(codes, ends[:-1]), strict=True):
            if entry.question not in self._serial:
                self._admit(entry.question)
                fresh.append(entry.key)
            self._write(self._serial[entry.question], rows)
        self._index_fresh(np.array(fresh, np.float32).reshape(len(fresh), self._index.d))

    def _admit(self, question: bytes) -> None:
        number = self._first_free()
        if self.questions == len(self._rings):
            del self._serial[next(iter(self._serial))]
        self._serial[question] = number
        self._written[number % len(self._rings)] = 0

    def _first_free(self) -> int:
        return next(reversed(self._serial.values())) + 1 if self._serial else self._first

    def _write(self, number: int, rows: CodeRows) -> None:
        slot = number % len(self._rings)
        ring, written = self._rings[slot], int(self._written[slot])
        newest = rows[-len(ring) :]
        begin = written + len(rows) - len(newest)
        ring[np.arange(begin, begin + len(newest)) % len(ring)] = newest
        self._written[slot] = written + len(rows)

    def _index_fresh(self, fresh: Vectors) -> None:
        """Bring the index to the questions that are held now, of which ``fresh`` are new (or gone again already)."""
        gone = next(iter(self._serial.values())) - self._first
        old = min(gone, self._index.ntotal)
        if old:
            self._index.remove_ids(faiss.IDSelectorRange(0, old))
        if len(fresh) > gone - old:
            self._index.add(np.ascontiguousarray(fresh[gone - old :]))
        self._first += gone
        assert self._index.ntotal == self.questions, (self._index.ntotal, self.questions)

    # --- saving ---------------------------------------------------------------------------------------------------

    def content(self) -> Content:
        """What it holds; not to be changed until ``values`` is read to its end."""
        numbers = list(self._serial.values())
        counts = np.array([len(self._rows(number)) for number in numbers], np.int64)
        ids = np.frombuffer(b"".join(self._serial), np.uint8).reshape(len(numbers), 16)
        keys = faiss.vector_to_array(self._index.codes).reshape(len(numbers), self._index.code_size)
        return Content(ids, keys, counts, map(self._rows, numbers))

    def restore(self, content: Content) -> None:
        """Fill an empty store. What is more than fits leaves as if it had been added."""
        count = len(content.counts)
        assert not self._serial and content.questions.dtype == content.keys.dtype == np.uint8
        assert content.questions.shape == (count, 16) and len(content.keys) == count and (content.counts > 0).all()
        for question, rows in zip(content.questions, content.values, strict=True):
            assert rows.dtype == np.uint8 and rows.shape[1:] == (self.codes.size,), rows.shape
            self._admit(question.tobytes())
            self._write(self._serial[question.tobytes()], rows)
        assert self.questions == min(count, len(self._rings)), "a question comes twice"
        kept = content.keys[count - self.questions :]
        self._first = next(iter(self._serial.values()), 0)
        if len(kept):
            self._index.add_sa_codes(np.ascontiguousarray(kept))
