"""MEM_IR=entropy and lexical: what an answer earns for being unlike the texts before, whatever was asked; no model.

    R = weight * raw scaled by the window        raw: against the newest ``texts`` texts

entropy   bits of a letter drawn from the earlier texts and the new one together: Shannon, as Memory-R+'s baseline. A
          text that uses the rarer letters raises it.
lexical   edits that make one text's lines another's, over the longer one's number of lines; the mean over the earlier
          texts. It is the tree edit distance of the published baseline: there a text is a root whose children are its
          lines, and such trees differ by the edits of one sequence. Its random choice of lines is an even one here.

Example: lines a b c against a c d: drop b, add d, of 3 lines: 2/3.

All of a rollout is measured against the texts and the window before it, then all are written, in an order of their
own. Without earlier texts there is nothing to be unlike: 0, and nothing enters the window. An empty text earns 0 and
is not kept.
"""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ..reward import Answered
from .memory import Count, Intrinsic, IntrinsicSettings, Weight

FILE = "texts.json"


@dataclass(frozen=True)
class EntropySettings(IntrinsicSettings):
    """MEM_IR=entropy."""

    weight: Weight = 1.0
    window: Count = 1_000
    texts: Count = 1_000
    """Earlier texts that count; the oldest one goes first."""


@dataclass(frozen=True)
class LexicalSettings(EntropySettings):
    """MEM_IR=lexical."""

    weight: Weight = 0.1
    window: Count = 100
    texts: Count = 50
    lines: Count = 8
    """Lines of a text that count, evenly spread over it."""


class TextReward(Intrinsic):
    """The newest texts of a run; its settings say which of the two modes it is."""

    Settings = EntropySettings

    def __init__(self, settings: EntropySettings) -> None:
        self._mode = "lexical" if isinstance(settings, LexicalSettings) else "entropy"
        super().__init__(settings, {self._mode: settings.weight})
        self._texts: deque[str] = deque(maxlen=settings.texts)

    def raw_terms(self, batch: Sequence[Answered], texts: Sequence[str]) -> Sequence[Mapping[str, float]]:
        if not self._texts:
            return [{}] * len(batch)
        measure = self._measure()
        known = {text: {self._mode: measure(text)} for text in set(texts) if text}
        return [known.get(text, {}) for text in texts]

    def _measure(self) -> Callable[[str], float]:
        """What a text is measured by, against the texts that are there now."""
        if self._mode == "entropy":
            before = Counter(" ".join(self._texts))
            return lambda text: entropy(before + Counter(f" {text}"))
        most = self.settings.lines
        kept = [chosen_lines(text, most) for text in self._texts]
        return lambda text: fmean(lines_apart(chosen_lines(text, most), one) for one in kept)

    def remember(self, answer: Answered, text: str) -> None:
        self._texts.append(text)

    def metrics(self) -> dict[str, float]:
        return {"intrinsic/texts": float(len(self._texts)), **super().metrics()}

    def save(self, folder: Path) -> None:
        state = {"texts": list(self._texts), "values": list(self.windows[self._mode])}
        (folder / FILE).write_text(json.dumps(state))

    def load(self, folder: Path) -> None:
        state = json.loads((folder / FILE).read_text())
        self._texts.extend(state["texts"])
        self.windows[self._mode].extend(state["values"])


def entropy(counts: Mapping[str, int]) -> float:
    """In bits; 0 of nothing. Summed exactly, so that the order of the letters plays no part."""
    total = sum(counts.values())
    return -math.fsum(n / total * math.log2(n / total) for n in counts.values()) if total else 0.0


def chosen_lines(text: str, most: int) -> tuple[str, ...]:
    """At most ``most`` of its lines that are not blank, evenly spread from the first to the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) <= most:
        return tuple(lines)
    return tuple(lines[round(i * (len(lines) - 1) / max(1, most - 1))] for i in range(most))


def lines_apart(one: Sequence[str], other: Sequence[str]) -> float:
    """Lines to add, drop or change, over those of the longer text; 0 to 1."""
    row = list(range(len(other) + 1))
    for i, line in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, against in enumerate(other, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (line != against))
    return row[-1] / max(len(one), len(other), 1)
