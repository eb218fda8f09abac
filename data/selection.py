"""What a synthesised set is made from, and the questions chosen for it.

Evaluation files and training sets are asked for with the same options: raw files, how many questions, a seed and,
if wanted, the verdict of ``closed_book`` on which questions need no document; or, in place of count and verdict, a
published file whose questions are to be asked. The layout says how documents are made of them.

Invariants: the questions are a function of raw files, verdict or published file, count and seed alone, so every
length has the same ones in the same order; ``description`` changes whenever they or their documents might.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from ..system.errors import MemAgentError
from .manifest import sha256_of
from .options import Layout
from .pool import Corpora, PoolQuestion, load_corpora
from .published import published_ids

FORMAT = 2
"""Raised whenever the same options would give other bytes. 2: HotpotQA's text has no blank before closing quotes."""


class SelectionError(MemAgentError):
    """The questions asked for cannot be chosen."""


@dataclass(frozen=True, slots=True)
class Selection:
    raw: tuple[Path, ...]
    count: int
    """Of no account where ``published`` names the questions."""
    seed: int
    closed_book: Path | None = None
    published: Path | None = None
    layout: Layout = Layout.CLEAN

    def description(self) -> dict[str, Any]:
        """For a manifest. Raises SelectionError if a file cannot be read."""
        which: dict[str, Any] = {"published": _digest(self.published)} if self.published else {"questions": self.count}
        which |= {"closed_book": _digest(self.closed_book)} if self.closed_book else {}
        layout = {} if self.layout is Layout.CLEAN else {"layout": str(self.layout)}
        return self.pool_description() | {"kind": "synthesis", "seed": self.seed} | which | layout

    def pool_description(self) -> dict[str, Any]:
        """The same for the pool alone."""
        raw = [{"file": path.name, "sha256": _digest(path)} for path in self.raw]
        as_published = {"layout": str(self.layout)} if self.layout is Layout.PUBLISHED else {}
        return {"kind": "pool", "format": FORMAT, "raw": raw} | as_published

    def load(self) -> Corpora:
        """The pool of all raw files, and the chosen questions. Raises CorpusError, PublishedError, SelectionError."""
        return self.chosen(self.read())

    def read(self) -> Corpora:
        """The pool with all questions."""
        return load_corpora(self.raw, as_published=self.layout is Layout.PUBLISHED)

    def chosen(self, corpora: Corpora) -> Corpora:
        """Of all questions the chosen ones."""
        if self.published:
            return replace(corpora, questions=self._named(corpora, self.published))
        left = self._left(corpora)
        if len(left) < self.count:
            gone = len(corpora.questions) - len(left)
            without = f" ({gone} more were dropped by {self.closed_book})" if gone else ""
            raise SelectionError(
                f"{self.count} questions asked for, but the raw files have {len(left)}{without}; give more raw files "
                "or ask for fewer"
            )
        return replace(corpora, questions=choose(left, self.count, self.seed))

    def candidates(self, corpora: Corpora, times: int) -> Corpora:
        """Of all questions ``times`` as many as the chosen ones, or all there are."""
        left = self._left(corpora)
        return replace(corpora, questions=choose(left, min(times * self.count, len(left)), self.seed))

    def _left(self, corpora: Corpora) -> list[PoolQuestion]:
        dropped = read_dropped(self.closed_book) if self.closed_book else frozenset()
        return [question for question in corpora.questions if question.id not in dropped]

    def _named(self, corpora: Corpora, published: Path) -> tuple[PoolQuestion, ...]:
        (raw,) = self.raw
        by_id = {question.id: question for question in corpora.questions}
        ids = published_ids(published, raw)
        if absent := [name for name in ids if name not in by_id]:
            raise SelectionError(f"{raw}: question {absent[0]} lacks a supporting document; fetch the file again")
        return tuple(by_id[name] for name in ids)


def choose(questions: Sequence[PoolQuestion], count: int, seed: int) -> tuple[PoolQuestion, ...]:
    return tuple(random.Random(f"{seed}/questions").sample(questions, count))


def read_dropped(path: Path) -> frozenset[str]:
    """The ids that a verdict file of ``closed_book`` leaves out. Raises SelectionError."""
    try:
        return frozenset(orjson.loads(path.read_bytes())["dropped"])
    except (OSError, ValueError, KeyError, TypeError):
        raise SelectionError(f"{path}: not a verdict of closed_book; let that finish first") from None


def _digest(path: Path) -> str:
    if not path.is_file():
        raise SelectionError(f"{path}: no such file")
    return sha256_of(path)
