"""A reward for models that cannot earn any: the user's own, and a coin.

A model with random weights answers nothing right. All advantages would be 0, no weight would ever change, and a filter
for mixed groups would wait for ever. The coin falls by the reply's text, so it is the same in a replay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..config import Config
from ..hooks.rewards import load_reward
from ..rewards.reward import Answered, Parts, Reward


@dataclass(frozen=True)
class OwnReward:
    reward: str = "task"
    """REWARD as the user set it."""
    settings: str = ""
    """REWARD_ARGS as the user set it."""


class Coin(Reward):
    Settings = OwnReward

    def __init__(self, settings: OwnReward) -> None:
        super().__init__(settings)
        asks_elsewhere = settings.reward == "answer_utility"  # random weights name no ranking to ask about
        own = Config() if asks_elsewhere else Config(reward=settings.reward, reward_args=settings.settings)
        self._own = load_reward(own)

    def begin(self) -> None:
        self._own.begin()

    async def parts(self, answer: Answered) -> Parts:
        return {**await self._own.parts(answer), "coin": float(hashlib.sha256(answer.reply.encode()).digest()[0] % 2)}

    def batch_parts(self, batch: Sequence[Answered]) -> Sequence[Parts]:
        return self._own.batch_parts(batch)

    def metrics(self) -> Parts:
        return self._own.metrics()

    def save(self, folder: Path) -> None:
        self._own.save(folder)

    def load(self, folder: Path) -> None:
        self._own.load(folder)
