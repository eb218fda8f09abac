"""Which sessions a model is shown: the one rule of pre-filter, training's reward, chat and toolkit.

Sessions are taken from best to worst until one does not fit the budget, and are then shown in the order of time. That
is the published rule (MemSifter, ``PreFilterActor``) but for one case: a session that is larger than the whole budget
can never be shown, so it is passed over and counted, where the published rule would show nothing behind it.

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
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Packed:
    shown: tuple[int, ...]
    """Positions in the history, ascending."""
    tokens: int
    too_large: tuple[int, ...]
    """Positions that were passed over; ascending."""
    cut: bool
    """Whether the budget ended it before ``order`` did."""


def pack(order: Sequence[int], tokens: Sequence[int], budget: int) -> Packed:
    """Pack the positions ``order``, best first, of sessions that have so many ``tokens`` each, [sessions].

    ``order`` may name some of the sessions only. Raises ValueError where it repeats one or names one that is not
    there.
    """
    if len(set(order)) != len(order):
        raise ValueError(f"positions repeat: {list(order)!r:.80}")
    if strange := [position for position in order if not 0 <= position < len(tokens)]:
        raise ValueError(f"position {strange[0]} of {len(tokens)} sessions")
    shown: list[int] = []
    too_large: list[int] = []
    used, cut = 0, False
    for position in order:
        size = tokens[position]
        if size > budget:
            too_large.append(position)
        elif used + size > budget:
            cut = True
            break
        else:
            shown.append(position)
            used += size
    return Packed(tuple(sorted(shown)), used, tuple(sorted(too_large)), cut)


def by_score(scores: Sequence[float | None]) -> list[int]:
    """Positions from the highest score to the lowest, the earlier one first where they are equal; None and NaN come
    last."""
    return sorted(range(len(scores)), key=lambda position: _falling(scores[position]))


def _falling(score: float | None) -> float:
    return inf if score is None or score != score else -score
