"""Which sessions a model is shown: the one rule of pre-filter, training's reward, chat and toolkit.

Sessions are taken from best to worst until one does not fit the budget, and are then shown in the order of time. That
is the published rule (MemSifter, ``PreFilterActor``) except in one case: a session that is larger than the whole
budget can never be shown, so it is passed over, where the published rule would show nothing behind it.

Budget 10, sessions of 4, 12, 5 and 3 tokens, best first 3, 1, 0, 2::

    3 (3) fits | 1 (12) never fits, passed over | 0 (3 + 4) fits | 2 (7 + 5 > 10) ends it    -> shown (0, 3)

Invariants:
- shown sessions have at most ``budget`` tokens in all;
- what is shown of a longer ``order`` holds all that was shown of its beginning;
- what is shown with a larger budget holds all that was shown with a smaller one, unless a session that was too large
  for the smaller one fits now: it then takes the room of those behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Packed(NamedTuple):
    shown: tuple[int, ...]
    """Positions in the history, ascending."""
    tokens: int


def pack(order: Sequence[int], tokens: Sequence[int], budget: int) -> Packed:
    """Pack the positions ``order``, best first, of sessions that have so many ``tokens`` each, [sessions].

    ``order`` may name some of the sessions only.
    """
    shown: list[int] = []
    used = 0
    for position in order:
        size = tokens[position]
        if size > budget:
            continue
        if used + size > budget:
            break
        shown.append(position)
        used += size
    return Packed(tuple(sorted(shown)), used)


def by_score(scores: Sequence[Any]) -> list[int]:
    """Positions from the highest score to the lowest, the earlier one first where they are equal; None and NaN come
    last."""
    found: list[int] = np.argsort(-np.array(scores, np.float64), kind="stable").tolist()
    return found
