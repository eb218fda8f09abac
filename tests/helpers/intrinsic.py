"""Intrinsic rewards on vectors that a test chooses: texts are given their vectors in a table."""

from collections.abc import Mapping, Sequence

import numpy as np

from mem_agent.rewards.intrinsic.memory import Episodic, KnnPlusSettings, KnnSettings
from mem_agent.rewards.reward import Answered


class Table:
    """An encoder that looks vectors up and counts what it was asked."""

    name = "table"

    def __init__(self, vectors: Mapping[str, Sequence[float]], fingerprint: str = "table-1") -> None:
        self._vectors, self.fingerprint = vectors, fingerprint
        self.asked: list[str] = []

    def encode(self, texts):
        self.asked += texts
        return np.array([self._vectors[text] for text in texts], np.float32)


def episodic(encoder, k=1, plus=True, **settings) -> Episodic:
    """Exploring from the start, unless told otherwise."""
    chosen = ({"warmup": 0} if plus else {}) | settings
    return Episodic((KnnPlusSettings if plus else KnnSettings)(k=k, **chosen), encoder)


def answer(question, text, right=False, group=0, **fields) -> Answered:
    worth = float(right)
    reasoning = fields.pop("reasoning", text)
    return Answered(question, ("gold",), {}, text, {"answer": worth}, worth, group, reasoning, **fields)
