r"""What a ranking is worth by the answers that it leads to: MemSifter's outcome reward.

A frozen chat model answers from the first k sessions of a ranking, for every k of a few tiers and for none. With
scores s_k in [0, 1], and tiers k_1 < ... < k_N,

    R_ans = sum_n D_n (s_{k_n} - s_{k_{n-1}}),  D_n = 1 / log2(k_n + 1),  k_0 = 0
          = -s_0 + sum_n w_n s_{k_n},           w_n = D_n - D_{n+1},  w_N = D_N

so sessions that help early count most. The weights sum to 1 where k_1 = 1, so R_ans is in [-1, 1], and is 0 where
sessions change nothing::

    tier       1       2       3       5       8       10
    weight     0.3691  0.1309  0.1131  0.0714  0.0264  0.2891

    answered from the first session on      1.0        gold at rank 2        0.6309
    by the first session alone              0.3691     gold at rank 10       0.2891
    right without any, wrong with them     -1.0        all alike             0.0

Source: arXiv 2603.03379, equations 4 and 5. Their figure has 0.0528 at tier 8, with the next Fibonacci number in
place of equation 5's last weight; their released ``task_reward_score.py`` leaves the first tier out, so sessions that
change nothing are worth -0.3691 there.

A ranking of m sessions has the tiers below m and m itself (``tiers_for``; released: tiers up to n, then n). Of 6
sessions: 1, 2, 3, 5, 6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

TIERS = (1, 2, 3, 5, 8, 10)


def read_tiers(text: str) -> tuple[int, ...]:
    """Tiers as settings write them, ``1,2,3,5,8,10``. Raises ValueError where they do not rise from 1."""
    words = [word.strip() for word in text.split(",")]
    tiers = tuple(int(word) for word in words if word.isascii() and word.isdigit())
    if len(tiers) < len(words) or tiers[0] != 1 or any(later <= earlier for earlier, later in pairwise(tiers)):
        raise ValueError(f"{text!r}: expected numbers that rise from 1, so that their weights sum to 1")
    return tiers


def tiers_for(ranked: int, tiers: Sequence[int] = TIERS) -> tuple[int, ...]:
    """The tiers of a ranking of ``ranked`` sessions: those beyond it fall together at its end."""
    assert ranked >= 1, ranked
    return tuple(sorted({min(tier, ranked) for tier in tiers}))


def tier_weights(tiers: Sequence[int]) -> tuple[float, ...]:
    """w_n of each tier, [tiers]; they sum to 1 where the first is 1."""
    discounts = [1.0 / math.log2(tier + 1) for tier in tiers]
    return tuple(here - after for here, after in zip(discounts, [*discounts[1:], 0.0], strict=True))


def marginal_utility(scores: Mapping[int, float]) -> float:
    """R_ans of the score s_k for every tier k; ``scores[0]`` is that without any session."""
    tiers = sorted(tier for tier in scores if tier > 0)
    # The differences are summed, not -s_0 plus the weighted scores: equal scores then give 0 to the last bit.
    gains = (weight * (scores[tier] - scores[0]) for tier, weight in zip(tiers, tier_weights(tiers), strict=True))
    return math.fsum(gains)
