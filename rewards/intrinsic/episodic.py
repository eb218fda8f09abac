"""MEM_IR=knn and knn+: near the mean of earlier successes, and far from earlier failures, of the nearest questions.

    R_mem = exploit * E + explore * X        E, X: raw terms (``terms``) scaled by their windows (``window``)

Edges, each a rule:
- no success stored: E = 0; no failure stored: X = 0; nothing enters the window then;
- X = 0 before ``warmup`` failed questions and ``warmup_rollouts`` rollouts are stored; its window fills meanwhile;
- an empty window, or one of equal values: 0; a raw value outside the window's range: cut to 0 or 1;
- fewer than k questions stored: all of them;
- an answer without a text, or without a sentence: 0, and nothing is stored of it;
- an answer worth ``failure`` to ``success`` is neither, and earns all the same.

Invariant: parts are a function of (question, text) and the state before the rollout; the state after, of that and of
the rollout as a set. Equal answers of siblings are all stored, as published: what was given often weighs more.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...system.files import replacing
from ..reward import Answered, Parts, Reward
from . import terms
from .embedder import Embedder
from .encoder import Vectors
from .settings import KnnPlusSettings, KnnSettings
from .spread import intrinsic_share
from .state import refuse_other, unreadable
from .store import Entry, Store
from .texts import normalised, place, question_id, sentences
from .window import Window

FILE = "episodic.npz"
EXPLOIT, EXPLORE = "intrinsic_exploit", "intrinsic_explore"


@dataclass(frozen=True, slots=True)
class Case:
    """What of an answer counts here."""

    question: bytes
    question_text: str
    pieces: tuple[str, ...]
    """Its text, whole or by sentences; none of an answer that says nothing."""
    order: tuple[bytes, float]

    @property
    def key(self) -> tuple[bytes, tuple[str, ...]]:
        return self.question, self.pieces


@dataclass(frozen=True, slots=True)
class Raw:
    """The terms before their windows; None where there is nothing to compare with."""

    exploit: float | None = None
    explore: float | None = None


class Episodic(Reward):
    """One memory of a run."""

    Settings = KnnSettings

    def __init__(self, settings: KnnSettings, k: int, embedder: Embedder) -> None:
        super().__init__(settings)
        self.settings: KnnSettings = settings
        self._k, self._embedder = k, embedder
        self._explores = isinstance(settings, KnnPlusSettings)
        self.stores = self._empty()
        """``success`` and, of knn+, ``failure``."""
        self._windows = {name: Window(settings.window) for name in ("exploit", "explore")}
        self._rollouts = 0
        self._share = 0.0

    # --- scoring --------------------------------------------------------------------------------------------------

    async def parts(self, answer: Answered) -> Parts:
        """The answer's own, while its texts are embedded beside the rollout."""
        case = self._case(answer)
        if case.pieces:
            await self._embedder.warm([case.question_text, *case.pieces])
        return answer.parts

    def expected_parts(self, answers: Sequence[Answered]) -> Sequence[Parts]:
        return [self._scaled(raw) for raw in self._raws([self._case(answer) for answer in answers])]

    def batch_parts(self, batch: Sequence[Answered]) -> Sequence[Parts]:
        cases = [self._case(answer) for answer in batch]
        raws = self._raws(cases)
        parts = [self._scaled(raw) for raw in raws]
        self._share = intrinsic_share(
            [answer.group for answer in batch], [sum(answer.parts.values()) for answer in batch],
            [sum(one.values()) for one in parts],
        )
        order = sorted(range(len(batch)), key=lambda i: cases[i].order)
        self._remember([(cases[i], batch[i].accuracy) for i in order])
        for name, window in self._windows.items():
            window.extend(raw for i in order if (raw := getattr(raws[i], name)) is not None)
        self._rollouts += 1
        return parts

    def _case(self, answer: Answered) -> Case:
        text = answer.reasoning if self.settings.text == "reasoning" else answer.reply
        whole = [text] if text.strip() else []
        pieces = sentences(text) if self.settings.level == "sentence" else whole
        question = question_id(answer.question)
        return Case(question, normalised(answer.question), tuple(pieces), (place(question, text), answer.accuracy))

    def _raws(self, cases: Sequence[Case]) -> list[Raw]:
        """Of equal cases one is computed; questions and texts in an order of their own."""
        fresh = {case.key: case for case in cases if case.pieces}
        if not fresh:
            return [Raw()] * len(cases)
        by_question: dict[bytes, list[Case]] = {}
        for case in sorted(fresh.values(), key=lambda case: case.order):
            by_question.setdefault(case.question, []).append(case)
        asked = list(by_question)
        keys = self._embedder.vectors([by_question[question][0].question_text for question in asked])
        found: dict[Any, Raw] = {}
        near = {name: store.nearest(asked, keys, self._k) for name, store in self.stores.items()}
        for i, question in enumerate(asked):
            held = {name: store.vectors(near[name][i], keys.shape[1]) for name, store in self.stores.items()}
            successes = held["success"]
            failures = held.get("failure", successes[:0])
            vectors = [self._embedder.vectors(case.pieces) for case in by_question[question]]
            for case, raw in zip(by_question[question], _compared(vectors, successes, failures), strict=True):
                found[case.key] = raw
        return [found.get(case.key, Raw()) for case in cases]

    def _scaled(self, raw: Raw) -> dict[str, float]:
        def earned(name: str, value: float | None) -> float:
            return 0.0 if value is None else self._windows[name].scaled(value)

        parts = {EXPLOIT: self.settings.exploit * earned("exploit", raw.exploit)}
        if isinstance(self.settings, KnnPlusSettings):
            weight = self.settings.explore * self.settings.anneal**self._rollouts if self._warm(self.settings) else 0.0
            parts[EXPLORE] = weight * earned("explore", raw.explore)
        return parts

    def _warm(self, settings: KnnPlusSettings) -> bool:
        return self.stores["failure"].questions >= settings.warmup and self._rollouts >= settings.warmup_rollouts

    # --- writing --------------------------------------------------------------------------------------------------

    def _remember(self, answers: Sequence[tuple[Case, float]]) -> None:
        kinds = {"success": [case for case, worth in answers if worth >= self.settings.success and case.pieces]}
        if isinstance(self.settings, KnnPlusSettings):
            failure = self.settings.failure
            kinds["failure"] = [case for case, worth in answers if worth < failure and case.pieces]
        for name, cases in kinds.items():
            entries = [Entry(case.question, self._vector(case.question_text), self._embedder.vectors(case.pieces))
                       for case in cases]
            self.stores[name].add(entries)

    def _vector(self, text: str) -> Vectors:
        return self._embedder.vectors([text])[0]

    def _empty(self) -> dict[str, Store]:
        names = ("success", "failure") if self._explores else ("success",)
        return {name: Store(self.settings.keys, self.settings.values) for name in names}

    # --- telling, saving, loading ---------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Sizes of the stores, bounds of the windows, and the share of siblings' differences that is intrinsic."""
        told: dict[str, float] = {"share": self._share}
        for name, store in self.stores.items():
            told |= {f"{name}_questions": store.questions, f"{name}_vectors": store.vectors_held}
        for name, window in self._windows.items():
            if window.bounds is not None:
                told |= {f"{name}_least": window.bounds[0], f"{name}_most": window.bounds[1]}
        return {f"intrinsic/{name}": float(value) for name, value in told.items()}

    def save(self, folder: Path) -> None:
        arrays: dict[str, Any] = {f"{name}.window": np.array(window.values) for name, window in self._windows.items()}
        for name, store in self.stores.items():
            arrays |= {f"{name}.{part}": array for part, array in store.arrays().items()}
        about = {**self._about(), "rollouts": self._rollouts, "name": self._embedder.encoder.name}
        with replacing(folder / FILE) as file:
            np.savez(file, about=np.array(json.dumps(about)), **arrays)

    def _about(self) -> dict[str, str]:
        """What a saved memory must share with this one."""
        return {"model": self._embedder.encoder.fingerprint, "mode": "knn+" if self._explores else "knn",
                "level": self.settings.level, "text": self.settings.text}

    def load(self, folder: Path) -> None:
        """Raises ConfigError: the file is damaged, or of another model, mode, level or text."""
        try:
            with np.load(folder / FILE) as archive:
                about, arrays = json.loads(str(archive["about"])), dict(archive)
            refuse_other(folder / FILE, about, self._about())
            windows = {name: Window(self.settings.window, arrays[f"{name}.window"].tolist()) for name in self._windows}
            stores = self._empty()
            for name, store in stores.items():
                parts = (part.partition(".") for part in arrays)
                store.restore({part: arrays[f"{kind}.{part}"] for kind, _, part in parts
                               if kind == name and part != "window"})
            self._windows, self.stores, self._rollouts = windows, stores, int(about["rollouts"])
        except (OSError, EOFError, ValueError, LookupError, TypeError, zipfile.BadZipFile) as error:
            raise unreadable(folder / FILE, error) from None


def _compared(vectors: Iterable[Vectors], successes: Vectors, failures: Vectors) -> list[Raw]:
    """The terms of responses to one question, given the vectors that its nearest questions hold."""
    middle = terms.centre(successes) if len(successes) else None
    norms = terms.lengths(failures)
    return [
        Raw(terms.exploit(pieces, middle) if middle is not None else None,
            terms.explore(pieces, failures, norms) if len(failures) else None)
        for pieces in vectors
    ]
