r"""``REWARD=cosine``: the shorter of two right answers is worth more, the shorter of two wrong ones less.

    r = lo + (hi - lo) / 2 * (1 + cos(pi * progress)),   progress = tokens / max_tokens, at most 1

with hi for the shortest and lo for the longest: 1 and .5 for right answers, -1 and -.5 for wrong ones.

    tokens of 200    0      50       100     150       200 and more
    right            1      0.927    0.75    0.573     0.5
    wrong           -1     -0.927   -0.75   -0.573    -0.5

Source: ``get_cosine_scaled_reward`` of Memory-R's ``utils_gsm8k.py`` (a193f4f), after Open-R1. There ``tokens`` are
characters set against a limit in tokens, and beyond the limit the cosine turns round: 400 characters of 200 tokens are
worth what none are. Its trainer adds this beside all other rewards, as here by default; ``in_place=1`` leaves out
``correct``, which says the same without a length.

A trajectory's tokens are those of all its turns. Where an agent writes more than its answer, set ``max_tokens``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..system.errors import ConfigError
from .reward import Answered, Parts, Reward

RIGHT = 0.5
"""An answer worth this much to its task is right."""


@dataclass(frozen=True)
class CosineSettings:
    max_tokens: int = 0
    """Tokens beyond which length no longer counts; 0: those of the final turn, MEM_MAX_FINAL."""
    right_short: float = 1.0
    right_long: float = 0.5
    wrong_short: float = -1.0
    wrong_long: float = -0.5
    in_place: bool = False
    """In place of the part ``correct``, or of all parts of a task that has none; else added to them."""

    def __post_init__(self) -> None:
        if self.max_tokens < 0:
            raise ConfigError(f"REWARD_ARGS: max_tokens={self.max_tokens}: allowed: a whole number from 0 on")
        worths = (self.right_short, self.right_long, self.wrong_short, self.wrong_long)
        if not all(map(math.isfinite, worths)):
            raise ConfigError(f"REWARD_ARGS: worths of {worths}: allowed: numbers")


class CosineLength(Reward):
    Settings = CosineSettings

    async def parts(self, answer: Answered) -> Parts:
        s: CosineSettings = self.settings
        most = s.max_tokens or answer.counts["max_final_tokens"]
        short, long = (
            (s.right_short, s.right_long) if answer.accuracy >= RIGHT else (s.wrong_short, s.wrong_long))
        kept = answer.parts
        if s.in_place:
            kept = {name: value for name, value in kept.items() if name != "correct"} if "correct" in kept else {}
        return {**kept, "length": cosine_by_length(answer.counts["response_tokens"], most, short, long)}


def cosine_by_length(tokens: float, most: float, short: float, long: float) -> float:
    """From ``short`` for no tokens along half a cosine to ``long`` for ``most`` and more."""
    progress = min(1.0, max(0.0, tokens / most))
    return long + (short - long) / 2 * (1.0 + math.cos(math.pi * progress))
