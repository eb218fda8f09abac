"""How much of what tells siblings apart is intrinsic.

GRPO compares an answer with its siblings, so only differences inside a group train. The share is
``I / (I + B)``: squared differences from the group's mean, summed over all groups, I of the intrinsic reward and B of
all the rest. 0: the intrinsic reward tells no siblings apart; 1: nothing else does.

Example, one group: rest 1 0 and intrinsic 0.5 0.5 give 0; rest 0 0 and intrinsic 0.2 0.4 give 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from math import fsum
from statistics import fmean


def intrinsic_share(groups: Sequence[Hashable], rest: Sequence[float], intrinsic: Sequence[float]) -> float:
    """0 where no siblings differ at all."""
    own, other = _inside(groups, intrinsic), _inside(groups, rest)
    return own / (own + other) if own + other > 0 else 0.0


def _inside(groups: Sequence[Hashable], values: Sequence[float]) -> float:
    members: dict[Hashable, list[float]] = defaultdict(list)
    for group, value in zip(groups, values, strict=True):
        members[group].append(value)
    return fsum((value - fmean(many)) ** 2 for many in members.values() for value in many)
