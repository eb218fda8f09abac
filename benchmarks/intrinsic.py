"""The memory of MEM_IR=knn+, full: 10,000 questions of 100 vectors of 384 coordinates, in 4 bits each.

One store is filled in this process, which measures what it grew by: resident memory with the store at rest, and the
most it held while answers were scored and written. Then the other store is filled, too, and 256 answers are scored
against both and written, half of them to questions that are new, their texts embedded before; and the whole state is
saved and loaded, on the disk that holds temporary files. MB are 10^6 bytes. Vectors are random: time and space do not
depend on them. MiniLM itself, where it can be had, embeds texts of 100 words one after another, as training does, and
32 at a time.
"""

from __future__ import annotations

import gc
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ..config import ConfigError
from ..hooks.intrinsic import encoder
from ..rewards.intrinsic.codes import Vectors, rotated
from ..rewards.intrinsic.embedder import Embedder
from ..rewards.intrinsic.episodic import FILE, Episodic
from ..rewards.intrinsic.settings import KnnPlusSettings
from ..rewards.intrinsic.store import Entry, Store
from ..rewards.intrinsic.texts import normalised, question_id
from ..rewards.reward import Answered
from .converter import forget_peak, resident
from .outcome import Outcome, print_alone
from .stopwatch import Sample, interleaved, timed

NAME = "intrinsic"
KEYS, VALUES, DIMS, ANSWERS = 10_000, 100, 384, 256
MEGABYTES, SCORE_S, STATE_S = 200.0, 1.0, 2.0
MODEL, TEXTS, WORDS = "all-MiniLM-L6-v2", 64, 100
COMMON = "she he has had 3 5 12 pens boxes cost each and then so of in total left 7 gives away".split()
"""Words that are one token each."""
_DIFFERENT = 20
"""Sets of vectors that questions take in turn."""


class RandomVectors:
    """An encoder that gives each text a direction of its own."""

    name = fingerprint = "random"

    def encode(self, texts: Sequence[str]) -> Vectors:
        rows = [np.random.default_rng(list(question_id(one))).standard_normal(DIMS, np.float32) for one in texts]
        return np.stack(rows) / np.linalg.norm(rows, axis=1, keepdims=True)


def measure(quick: bool = False, keys: int = KEYS, values: int = VALUES) -> list[Outcome]:
    rounds = 3 if quick else 10
    settings = KnnPlusSettings(keys=keys, values=values, warmup=0)
    held, peak = memory(settings)
    reward = Episodic(settings, 1, Embedder(RandomVectors()))
    reward.stores = {name: filled(settings, number) for number, name in enumerate(("success", "failure"))}
    scored = scoring(reward, rounds)
    wide = Episodic(settings, 30, reward._embedder)
    wide.stores = reward.stores
    scored_wide = scoring(wide, rounds)
    saved, loaded, megabytes = state(reward, rounds)
    what = f"{keys:,} questions of {values} vectors"
    return [
        Outcome(NAME, f"a store of {what}", (held,), unit="MB", target=MEGABYTES, at_most=True,
                note=f"{peak:,.1f} MB at most while answers were scored and written"),
        _seconds(f"{ANSWERS} answers scored against two such and written, MEM_IR_K=1", scored, SCORE_S),
        _seconds(f"{ANSWERS} answers scored against two such and written, MEM_IR_K=30", scored_wide, None),
        _seconds("both saved", saved, STATE_S, f"{megabytes:,.0f} MB on disk"),
        _seconds("both loaded", loaded, STATE_S),
        *embedding(TEXTS // 4 if quick else TEXTS),
    ]


def _seconds(what: str, samples: list[Sample], target: float | None, note: str = "") -> Outcome:
    return Outcome(NAME, what, tuple(s.wall for s in samples), unit="s", target=target, at_most=True, note=note,
                   samples={"call": samples})


def memory(settings: KnnPlusSettings) -> tuple[float, float]:
    """Megabytes that the process grows by with one full store, at rest and at most while it is used."""
    small = Episodic(KnnPlusSettings(keys=300, warmup=0), 1, Embedder(RandomVectors()))
    scoring(small, 2)  # what the first calls load, and their texts, are no store's
    batches = [batch(number) for number in range(2)]
    gc.collect()
    before = _megabytes("VmRSS")
    reward = Episodic(settings, 1, small._embedder)
    reward.stores = {"success": filled(settings, 0), "failure": Store(DIMS, 1, 1, 4)}
    gc.collect()
    forget_peak()
    for one in batches:
        reward.batch_parts(one)
    gc.collect()
    return _megabytes("VmRSS") - before, _megabytes("VmHWM") - before


def _megabytes(kind: str) -> float:
    return resident(kind) * 2**20 / 1e6


def filled(settings: KnnPlusSettings, seed: int) -> Store:
    store = Store(DIMS, settings.keys, settings.values, settings.bits)
    random_vectors = np.random.default_rng(seed)
    rows = random_vectors.standard_normal((_DIFFERENT, settings.values, DIMS), np.float32)
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    for first in range(0, settings.keys, _DIFFERENT):
        numbers = range(first, min(first + _DIFFERENT, settings.keys))
        names = [normalised(f"question {number}") for number in numbers]
        keys = rotated(RandomVectors().encode(names))
        store.add([Entry(question_id(name), key, rows[i % _DIFFERENT])
                   for i, (name, key) in enumerate(zip(names, keys, strict=True))])
    return store


def batch(number: int) -> list[Answered]:
    """Every second answer is to a question of the store, the others to new ones; every fourth is right."""
    answers = []
    for i in range(ANSWERS):
        question = f"question {i * 7}" if i % 2 else f"new question {number}/{i}"
        worth = float(i % 4 == 0)
        answers.append(Answered(question, (), {}, "", {"correct": worth}, worth, i, f"answer {number}/{i}"))
    return answers


def scoring(reward: Episodic, rounds: int) -> list[Sample]:
    taken = []
    for number in range(rounds):
        answers = batch(number)
        reward._embedder.vectors([one for a in answers for one in (normalised(a.question), a.reasoning)])
        taken.append(timed(lambda answers=answers: reward.batch_parts(answers)))
    return taken


def state(reward: Episodic, rounds: int) -> tuple[list[Sample], list[Sample], float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        saved = [timed(lambda: reward.save(folder)) for _ in range(rounds)]
        size = (folder / FILE).stat().st_size / 1e6
        fresh = [Episodic(reward.settings, 1, reward._embedder) for _ in range(rounds)]
        loaded = [timed(lambda: fresh.pop().load(folder)) for _ in range(rounds)]
    return saved, loaded, size


def embedding(count: int) -> list[Outcome]:
    draw = random.Random(0)
    texts = [" ".join(draw.choices(COMMON, k=WORDS)) for _ in range(count)]
    what = f"{MODEL}, texts of {WORDS} words"
    try:
        model = encoder(MODEL)
        model.encode(texts[:1])
    except ConfigError as error:
        return [Outcome(NAME, what, note=str(error))]
    ways: dict[str, Callable[[], object]] = {
        "one after another": lambda: model.encode(texts),
        "32 at a time": lambda: model._model.encode(texts, batch_size=32, show_progress_bar=False),
    }
    taken = interleaved({name: (lambda call=call: timed(call)) for name, call in ways.items()}, 2)
    return [Outcome(NAME, f"{what}, {name}", tuple(count / s.wall for s in samples), unit="texts/s",
                    samples={"call": samples}) for name, samples in taken.items()]


if __name__ == "__main__":
    print_alone(measure)
