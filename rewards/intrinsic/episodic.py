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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...system.errors import ConfigError
from ..reward import Answered, Parts, Reward
from . import terms
from .codes import Vectors
from .embedder import Embedder
from .settings import KnnPlusSettings, KnnSettings
from .spread import intrinsic_share
from .state_file import Archive, Array, Pieces, reading, write
from .store import Content, Entry, Store
from .texts import normalised, place, question_id, sentences
from .window import Window

FILE = "episodic.npz"
EXPLOIT, EXPLORE = "intrinsic_exploit", "intrinsic_explore"
_FORMAT = 1
_MOST = 2**53
"""Of anything that is counted: what a float can tell apart."""
_SETTINGS = ("level", "text", "bits")
"""Those that a saved memory must share."""


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
        self.stores: dict[str, Store] = {}
        """``success`` and ``failure``; none before the first vector is known."""
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
        if not fresh or not self.stores:
            return [Raw()] * len(cases)
        by_question: dict[bytes, list[Case]] = {}
        for case in sorted(fresh.values(), key=lambda case: case.order):
            by_question.setdefault(case.question, []).append(case)
        asked = list(by_question)
        keys = self._embedder.vectors([by_question[question][0].question_text for question in asked])
        if (held := self.stores["success"].codes.dims) != keys.shape[1]:
            raise ConfigError(f"the memory of MEM_IR has vectors of {held} numbers, those of MEM_IR_MODEL have "
                              f"{keys.shape[1]}; it was changed: start a new SAVE_PATH")
        found: dict[Any, Raw] = {}
        near = {name: store.nearest(asked, keys, self._k) for name, store in self.stores.items()}
        for i, question in enumerate(asked):
            successes = self.stores["success"].vectors(near["success"][i])
            failures = self.stores["failure"].vectors(near["failure"][i]) if self._explores else successes[:0]
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
        failed = self.stores["failure"].questions if self.stores else 0
        return failed >= settings.warmup and self._rollouts >= settings.warmup_rollouts

    # --- writing --------------------------------------------------------------------------------------------------

    def _remember(self, answers: Sequence[tuple[Case, float]]) -> None:
        kinds = {"success": [case for case, worth in answers if worth >= self.settings.success and case.pieces]}
        if isinstance(self.settings, KnnPlusSettings):
            failure = self.settings.failure
            kinds["failure"] = [case for case, worth in answers if worth < failure and case.pieces]
        if not any(kinds.values()):
            return
        for name, cases in kinds.items():
            entries = [Entry(case.question, self._vector(case.question_text), self._embedder.vectors(case.pieces))
                       for case in cases]
            if entries and not self.stores:
                self.stores = self._empty(entries[0].key.shape[0])
            if entries:
                self.stores[name].add(entries)

    def _vector(self, text: str) -> Vectors:
        return self._embedder.vectors([text])[0]

    def _empty(self, dims: int) -> dict[str, Store]:
        names = ("success", "failure") if self._explores else ("success",)
        return {name: Store(dims, self.settings.keys, self.settings.values, self.settings.bits) for name in names}

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
        arrays: dict[str, Array | Pieces] = {
            f"{name}.window": np.array(window.values, np.float64) for name, window in self._windows.items()
        }
        for name, store in self.stores.items():
            held = store.content()
            shape = (int(held.counts.sum()), store.codes.size)
            arrays |= {f"{name}.questions": held.questions, f"{name}.keys": held.keys, f"{name}.counts": held.counts,
                       f"{name}.values": Pieces(shape, np.uint8, held.values)}
        write(folder / FILE, self._about(), arrays)

    def _about(self) -> dict[str, Any]:
        encoder = self._embedder.encoder
        shared = {name: getattr(self.settings, name) for name in _SETTINGS}
        dims = next(iter(self.stores.values())).codes.dims if self.stores else 0
        return {"format": _FORMAT, "model": encoder.name, "fingerprint": encoder.fingerprint, "dims": dims,
                "rollouts": self._rollouts, "mode": "knn+" if self._explores else "knn", **shared}

    def load(self, folder: Path) -> None:
        """Raises ConfigError where the file is damaged, or of another model, mode or precision."""
        with reading(folder / FILE) as archive:
            _refuse_other(folder / FILE, archive.about, self._about())
            windows = {name: Window(self.settings.window, archive.numbers(f"{name}.window"))
                       for name in self._windows}
            dims, rollouts = (_count(archive.about[name]) for name in ("dims", "rollouts"))
            stores = self._empty(dims) if dims else {}
            for name, store in stores.items():
                store.restore(_content(archive, name))
        self._windows, self.stores, self._rollouts = windows, stores, rollouts


def _compared(vectors: Iterable[Vectors], successes: Vectors, failures: Vectors) -> list[Raw]:
    """The terms of responses to one question, given the vectors that its nearest questions hold."""
    middle = terms.centre(successes) if len(successes) else None
    norms = terms.lengths(failures)
    return [
        Raw(terms.exploit(pieces, middle) if middle is not None else None,
            terms.explore(pieces, failures, norms) if len(failures) else None)
        for pieces in vectors
    ]


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ValueError(f"{value!r:.40} is no number of anything")
    return value


def _content(archive: Archive, name: str) -> Content:
    counts = archive.array(f"{name}.counts")
    return Content(archive.array(f"{name}.questions"), archive.array(f"{name}.keys"), counts,
                   archive.pieces(f"{name}.values", map(int, counts)))


def _refuse_other(path: Path, held: Any, own: Any) -> None:
    if held["format"] != own["format"]:
        raise ConfigError(f"{path}: format {held['format']}, this version reads {own['format']}; use the version that "
                          "wrote it, or start a new SAVE_PATH")
    if held["fingerprint"] != own["fingerprint"]:
        raise ConfigError(
            f"{path}: its vectors are of {held['model']!r} ({held['dims']} dims, {held['fingerprint']}), MEM_IR_MODEL "
            f"is {own['model']!r} ({own['fingerprint']}); set MEM_IR_MODEL as it was, or start a new SAVE_PATH"
        )
    for name in ("mode", *_SETTINGS):
        if held[name] != own[name]:
            raise ConfigError(f"{path}: a memory of {name}={held[name]}, set is {name}={own[name]}; set it as it was, "
                              "or start a new SAVE_PATH")
