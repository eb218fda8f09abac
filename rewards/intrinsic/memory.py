"""What all modes of MEM_IR share: a batch is scored against memory and windows as they were before it; only then is it
remembered, in an order that its contents alone decide. So neither a reward nor the state after depends on the order
of the batch.
"""

from __future__ import annotations

import hashlib
import unicodedata
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from ..reward import Answered, Parts, Reward

Weight = Annotated[FiniteFloat, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
ID_BYTES = 16
_EPS = 1e-8
"""Memory-R+'s epsilon, which keeps the quotient finite."""
_TOLD_APART = 1e-6
"""Values closer than this differ by rounding alone."""


@dataclass(frozen=True)
class IntrinsicSettings:
    """Shared by all modes."""

    text: Literal["reasoning", "reply"] = "reasoning"
    """Which text of an answer counts: what led to the answer, or all of it."""
    window: Count = 100
    """Raw values of earlier batches that the next ones are normalised with."""


class Intrinsic(Reward):
    """A memory of a run. An answer without a text earns 0 and is not remembered."""

    def __init__(self, settings: IntrinsicSettings, weights: Mapping[str, float]) -> None:
        """``weights`` by term."""
        super().__init__(settings)
        self._weights = dict(weights)
        self.windows = {term: deque[float](maxlen=settings.window) for term in weights}
        """The newest raw values of each term in earlier batches."""

    def batch_parts(self, batch: Sequence[Answered]) -> Sequence[Parts]:
        texts = list(map(self.text_of, batch))
        raws = self.raw_terms(batch, texts)
        weights = self.weights()
        parts = [{f"intrinsic_{term}": weights[term] * scaled(raw.get(term), window)
                  for term, window in self.windows.items()} for raw in raws]

        def place(i: int) -> tuple[bytes, float]:
            """As if drawn by lot, but the same in every order of the batch."""
            text = texts[i].encode("utf-8", "surrogatepass")
            return _digest(question_id(batch[i].question) + text), batch[i].accuracy

        for i in sorted(range(len(batch)), key=place):
            if texts[i]:
                self.remember(batch[i], texts[i])
            for term, value in raws[i].items():
                self.windows[term].append(value)
        return parts

    def text_of(self, answer: Answered) -> str:
        """The text that counts; empty where it is blank."""
        text = answer.reasoning if self.settings.text == "reasoning" else answer.reply
        return text if text.strip() else ""

    @abstractmethod
    def raw_terms(self, batch: Sequence[Answered], texts: Sequence[str]) -> Sequence[Mapping[str, float]]:
        """The terms of each answer before they are scaled, without those that have nothing to be compared with."""

    def weights(self) -> Mapping[str, float]:
        """By term, as memory is now."""
        return self._weights

    @abstractmethod
    def remember(self, answer: Answered, text: str) -> None:
        """Keep an answer and its text, which is not blank."""

    def metrics(self) -> dict[str, float]:
        ends = {"least": min, "most": max}
        return {f"intrinsic/{term}_{name}": end(window)
                for term, window in self.windows.items() if window for name, end in ends.items()}


def scaled(raw: float | None, window: Sequence[float]) -> float:
    """(raw - least) / (greatest - least + EPS), cut to [0, 1]; 0 for no value, or of an empty or even window.

    A window of 0.4 0.3 0.9: 0.6 -> (0.6 - 0.3) / (0.9 - 0.3) = 0.5, 1.1 -> 1, 0.1 -> 0.
    """
    if raw is None or not window:
        return 0.0
    least, most = min(window), max(window)
    if most - least < _TOLD_APART:
        return 0.0
    return min(1.0, max(0.0, (raw - least) / (most - least + _EPS)))


def normalised(question: str) -> str:
    """The same for questions that differ in nothing but blanks and Unicode's forms of a letter."""
    return " ".join(unicodedata.normalize("NFKC", question).split())


def question_id(question: str) -> bytes:
    """16 bytes that equal questions (``normalised``) share, and no others."""
    return _digest(normalised(question).encode("utf-8", "surrogatepass"))


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=ID_BYTES).digest()
