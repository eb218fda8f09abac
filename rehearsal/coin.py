"""A reward for models that cannot earn any: the user's own, and a coin.

A model with random weights answers nothing right. All advantages would be 0, no weight would ever change, and a filter
for mixed groups would wait for ever. The coin falls by the reply's text, so it is the same in a replay.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ..config import Config
from ..hooks.rewards import load_reward
from ..rewards.reward import Added, Answered, Parts, Reward


@dataclass(frozen=True)
class OwnReward:
    reward: str = "task"
    """REWARD as the user set it."""
    settings: str = ""
    """REWARD_ARGS as the user set it."""


class Toss(Reward):
    async def parts(self, answer: Answered) -> Parts:
        return {**answer.parts, "coin": float(hashlib.sha256(answer.reply.encode()).digest()[0] % 2)}


class Coin(Added):
    Settings = OwnReward

    def __init__(self, settings: OwnReward) -> None:
        asks_elsewhere = settings.reward == "answer_utility"  # random weights name no ranking to ask about
        own = Config() if asks_elsewhere else Config(reward=settings.reward, reward_args=settings.settings)
        super().__init__(load_reward(own), Toss(settings))
