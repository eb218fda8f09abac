"""Rankings of sessions: how good one is, and the row of ``rank_sessions`` that one answers.

Metrics: how much of the gold a ranking finds, and how early. Items may be positions or ids.

Ranks count from 1; ``ranking`` is best first and names nothing twice; ``gold`` is what should be found, in any order.

=====================  =======================================================================================
``recall_at``          hits among the first k / |gold|
``reciprocal_rank``    1 / rank of the first hit, 0 where the first k hold none (its mean is MRR)
dcg                    sum over hits among the first k of 1 / log2(rank + 1)
``ndcg_at``            dcg / its value for the best ranking of k
``anchor_score``       dcg of 10 / |gold|: what MemSifter picks training rows by; a score of 1 is not within reach
                       where there are several gold
=====================  =======================================================================================

Worked example, ranking 7 2 9 4, gold {2, 4, 5}: the hits have ranks 2 and 4::

    recall@1 0, @4 2/3 | reciprocal rank 1/2
    dcg@4 = 1/log2(3) + 1/log2(5) = 0.6309 + 0.4307 = 1.0616
    best of 4: ranks 1, 2, 3: 1 + 0.6309 + 0.5 = 2.1309, so ndcg@4 = 0.4982, and the anchor score is 0.3539

The whole gold counts at every k. Published tables (MemSifter, ``utils/eval_utils.py``) cut the gold to its first k
ids at a cut-off k, so a hit on another one counts as a miss.

Nobody can say how good a ranking is where there is no gold: every function raises ValueError, and a row without gold
is skipped, counted neither as 0 nor as 1.

The history that a row names is a document in the store beside the training file: JSON of the sessions that the row's
prompt shows, in its order::

    {"sessions": [[{"role": "user", "content": "I moved to Lyon."}], ...], "ids": ["s7", ...], "dates": ["", ...]}
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Annotated, Any

import orjson
from pydantic import Field, TypeAdapter, ValidationError

from .sessions import BadRow, Language, Session, Turn
from .text_f1 import MOST_OPTIONS

Names = Sequence[Hashable]


def recall_at(ranking: Names, gold: Collection[Hashable], k: int) -> float:
    return len(hit_ranks(ranking, gold, k)) / len(set(gold))


def reciprocal_rank(ranking: Names, gold: Collection[Hashable], k: int | None = None) -> float:
    ranks = hit_ranks(ranking, gold, k)
    return 1 / ranks[0] if ranks else 0.0


def ndcg_at(ranking: Names, gold: Collection[Hashable], k: int) -> float:
    return _dcg(hit_ranks(ranking, gold, k)) / _dcg(range(1, min(k, len(set(gold))) + 1))


def anchor_score(ranking: Names, gold: Collection[Hashable]) -> float:
    return _dcg(hit_ranks(ranking, gold, 10)) / len(set(gold))


def hit_ranks(ranking: Names, gold: Collection[Hashable], k: int | None = None) -> list[int]:
    """The ranks, ascending, at which gold stands among the first ``k``. Raises ValueError."""
    wanted = set(gold)
    if not wanted:
        raise ValueError("no gold: such a row is not counted")
    return [rank for rank, name in enumerate(ranking[:k], 1) if name in wanted]


def _dcg(ranks: Sequence[int]) -> float:
    return sum(1 / log2(rank + 1) for rank in ranks)


# --- rows ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RankedRow:
    """The metadata that a row's reward needs."""

    question: Annotated[str, Field(pattern=r"\S")]
    answers: Annotated[tuple[Annotated[str, Field(pattern=r"\S")], ...], Field(min_length=1)]
    shown: Annotated[int, Field(ge=1)]
    session_tokens: tuple[int, ...]
    """Of each session as it is rendered, [shown]."""
    history_id: str
    question_date: str = ""
    language: Language = Language.EN
    options: Annotated[tuple[str, ...], Field(max_length=MOST_OPTIONS)] = ()
    """Of a multiple-choice question; they stand below it where the chat model is asked."""


def read_row(metadata: Mapping[str, Any]) -> RankedRow:
    """Raises BadRow."""
    try:
        return _ROW.validate_python({key: value for key, value in metadata.items() if value is not None})
    except ValidationError as error:
        field, name = error.errors()[0], metadata.get("id", "?")
        raise BadRow(f"row {name!r:.40} is no row of rank_sessions: {field['loc'][0]}: {field['msg']}") from None


_ROW = TypeAdapter(RankedRow)


def read_history(document: str) -> list[Session]:
    """The sessions of a stored history."""
    stored = orjson.loads(document)
    return [Session(name, tuple(Turn(turn["role"], turn["content"] or "") for turn in talk), date or "")
            for name, talk, date in zip(stored["ids"], stored["sessions"], stored["dates"], strict=True)]
