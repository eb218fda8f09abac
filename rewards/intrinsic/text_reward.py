"""MEM_IR=entropy and lexical: what an answer earns for being unlike the texts before, whatever was asked.

    R = weight * raw scaled by the window        raw: ``novelty``, against the newest ``texts`` texts

The rule is that of ``episodic``: all of a rollout against the texts and the window before it, then all are written, in
an order of their own. Without earlier texts there is nothing to be unlike: 0, and nothing enters the window. An empty
text earns 0 and is not kept.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from ...system.files import write_atomically
from ..reward import Answered, Parts, Reward
from . import novelty
from .settings import EntropySettings, LexicalSettings
from .spread import intrinsic_share
from .state import refuse_other, unreadable
from .texts import place, question_id
from .window import Window

FILE = "texts.json"
Measure = Callable[[str], float]


class TextReward(Reward):
    """One memory of a run; its settings say which of the two it is."""

    Settings = EntropySettings

    def __init__(self, settings: EntropySettings) -> None:
        super().__init__(settings)
        self.settings: EntropySettings = settings
        self._mode = "lexical" if isinstance(settings, LexicalSettings) else "entropy"
        self._texts: deque[str] = deque(maxlen=settings.texts)
        self._window = Window(settings.window)
        self._share = 0.0

    def expected_parts(self, answers: Sequence[Answered]) -> Sequence[Parts]:
        return [self._scaled(raw) for raw in self._raws(answers)]

    def batch_parts(self, batch: Sequence[Answered]) -> Sequence[Parts]:
        raws = self._raws(batch)
        parts = [self._scaled(raw) for raw in raws]
        self._share = intrinsic_share(
            [answer.group for answer in batch], [sum(answer.parts.values()) for answer in batch],
            [sum(one.values()) for one in parts],
        )
        texts = [self._text(answer) for answer in batch]
        order = sorted(range(len(batch)), key=lambda i: place(question_id(batch[i].question), texts[i]))
        self._texts.extend(texts[i] for i in order if texts[i].strip())
        self._window.extend(raw for i in order if (raw := raws[i]) is not None)
        return parts

    def _text(self, answer: Answered) -> str:
        return answer.reasoning if self.settings.text == "reasoning" else answer.reply

    def _raws(self, answers: Sequence[Answered]) -> list[float | None]:
        texts = [self._text(answer) for answer in answers]
        if not self._texts:
            return [None] * len(texts)
        measure = self._measure()
        known = {text: measure(text) for text in dict.fromkeys(texts) if text.strip()}
        return [known.get(text) for text in texts]

    def _measure(self) -> Measure:
        """What a text is measured by, against the texts that are there now."""
        settings = self.settings
        if not isinstance(settings, LexicalSettings):
            before = novelty.letters(self._texts)
            return lambda text: novelty.entropy(before + novelty.letters(["", text]))
        if settings.measure == "words":
            sets = [frozenset(text.lower().split()) for text in self._texts]
            return lambda text: fmean(novelty.words_apart(frozenset(text.lower().split()), one) for one in sets)
        most = settings.lines
        kept = [novelty.chosen_lines(text, most) for text in self._texts]
        return lambda text: fmean(novelty.lines_apart(novelty.chosen_lines(text, most), one) for one in kept)

    def _scaled(self, raw: float | None) -> dict[str, float]:
        return {f"intrinsic_{self._mode}": self.settings.weight * (0.0 if raw is None else self._window.scaled(raw))}

    # --- telling, saving, loading ---------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        bounds = self._window.bounds
        told = {"least": bounds[0], "most": bounds[1]} if bounds is not None else {}
        named = {f"{self._mode}_{name}": value for name, value in told.items()}
        return {f"intrinsic/{name}": float(value)
                for name, value in {"share": self._share, "texts": len(self._texts), **named}.items()}

    def save(self, folder: Path) -> None:
        state = {**self._about(), "texts": list(self._texts), "values": list(self._window.values)}
        write_atomically(folder / FILE, json.dumps(state).encode())

    def _about(self) -> dict[str, str]:
        measure = getattr(self.settings, "measure", "letters")
        return {"mode": self._mode, "measure": measure, "text": self.settings.text}

    def load(self, folder: Path) -> None:
        """Raises ConfigError: the file is damaged, or of other settings."""
        file = folder / FILE
        try:
            state = json.loads(file.read_bytes())
            refuse_other(file, state, self._about())
            texts, values = map(str, state["texts"]), map(float, state["values"])
            self._texts = deque(texts, maxlen=self.settings.texts)
            self._window = Window(self.settings.window, values)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise unreadable(file, error) from None
