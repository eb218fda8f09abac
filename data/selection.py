"""What a synthesised set is made from, and the questions chosen for it.

Evaluation files and training sets are asked for with the same options: raw files, how many questions, a seed and,
if wanted, the verdict of ``closed_book`` on which questions need no document.

Invariants: the questions are a function of raw files, verdict, count and seed alone, so every length has the same
ones in the same order; ``description`` changes whenever they might.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ..system.errors import MemAgentError
from .manifest import sha256_of
from .pool import Corpora, PoolQuestion, load_corpora

FORMAT = 1
"""Raised whenever the same options would give other bytes."""


class SelectionError(MemAgentError):
    """The questions asked for cannot be chosen."""


@dataclass(frozen=True, slots=True)
class Selection:
    raw: tuple[Path, ...]
    count: int
    seed: int
    closed_book: Path | None = None

    def description(self) -> dict[str, Any]:
        """For a manifest. Raises SelectionError if a file cannot be read."""
        verdict = {"closed_book": _digest(self.closed_book)} if self.closed_book else {}
        return {
            "kind": "synthesis",
            "format": FORMAT,
            "raw": [{"file": path.name, "sha256": _digest(path)} for path in self.raw],
            "questions": self.count,
            "seed": self.seed,
        } | verdict

    def load(self) -> Corpora:
        """The pool of all raw files, and the chosen questions. Raises CorpusError, SelectionError."""
        corpora = load_corpora(self.raw)
        dropped = read_dropped(self.closed_book) if self.closed_book else frozenset()
        left = [question for question in corpora.questions if question.id not in dropped]
        if len(left) < self.count:
            gone = len(corpora.questions) - len(left)
            without = f" ({gone} more were dropped by {self.closed_book})" if gone else ""
            raise SelectionError(
                f"{self.count} questions asked for, but the raw files have {len(left)}{without}; give more raw files "
                "or ask for fewer"
            )
        return Corpora(corpora.pool, choose(left, self.count, self.seed), corpora.skipped)


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
