"""One training step on many GPUs: rollout, log-probs, update, weight sync, in seconds.

GPUs are divided as the launcher does (``launch/layout.py``); all of them sample, then all of them train. Documents of
more chunks than ``SIMULATED`` are read in two shorter versions, and a straight line through both gives the time of the
whole: from the second chunk on all chunks cost the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...config import Config
from ...launch.layout import Gpus, Layout, derive_layout
from ...launch.model_args import ModelSize
from .engine import Limits
from .prompts import Reading, least_computed, read_documents
from .rates import Rates, engine_costs, engine_limits
from .rollout import Fleet, Outcome, simulate
from .training import Work, largest_share, training_time, work_items

SIMULATED = 24
HEAD = 128
"""Width of an attention head in all models below."""
MODELS = {
    # Published config.json files.
    "qwen2.5-7b": ModelSize(7_615_616_512, 28, 3584, 28, 4, 152_064),
    "qwen2.5-14b": ModelSize(14_770_033_664, 48, 5120, 40, 8, 152_064),
}


@dataclass(frozen=True)
class Variant:
    """How a step is done."""

    layout: str = "section_first"
    route: str = "group"
    split: bool = False
    """Groups are divided among engines where there are more engines than groups."""
    trees: bool = True
    skip_old: bool = True
    warm: bool = False


VARIANTS = {
    "published": Variant("memory_first", "sample", trees=False, skip_old=False),
    "section": Variant(trees=False, skip_old=False),
    "trees": Variant(),
    "warm": Variant(warm=True),
    "split": Variant(split=True, route="balanced"),
    "split-warm": Variant(split=True, route="balanced", warm=True),
}


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is trained; lengths in tokens."""

    reading: Reading
    document: int
    documents: int = 128
    group: int = 16
    spread: float = 0.0
    """Documents are this share shorter or longer at most."""
    steps: int = 1
    reference: bool = True
    seed: int = 0


@dataclass(frozen=True)
class Prediction:
    """Seconds, tokens and shares of one step; totals over all engines and ranks."""

    document: int
    gpus: int
    variant: str
    engines: int
    copies: int
    rollout: float
    rollout_90: float
    log_probs: float
    update: float
    sync: float
    sent: float
    computed: float
    least: float
    engine_busy: float
    """Mean share of the rollout in which an engine works."""
    row_tokens: float
    trained_tokens: float
    extrapolated: bool

    @property
    def step(self) -> float:
        return self.rollout + self.log_probs + self.update + self.sync

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"step": self.step}


def predict(
    task: Task, model: ModelSize, gpus: int, name: str, rates: Rates, simulated: int = SIMULATED
) -> Prediction:
    """Raises ConfigError where the model does not fit the GPUs."""
    variant = VARIANTS[name]
    reading = replace(task.reading, layout=variant.layout)
    layout, limits = _machine(reading, model, gpus, rates)
    engines = layout.rollout_gpus // layout.engine_gpus
    fleet = Fleet(
        engines=engines, costs=engine_costs(model, HEAD, layout.engine_gpus, rates), limits=limits,
        route=variant.route, warm=variant.warm, turn_s=rates.turn_s,
        parts=min(task.group, max(1, engines // task.documents)) if variant.split else 1,
    )
    chunks = chunk_counts(task)
    factor = min(1.0, simulated / max(chunks))
    ranks = layout.data_parallel
    long = _read(reading, task, fleet, chunks, factor, variant, ranks)
    if factor == 1.0:
        whole = long
    else:
        short = _read(reading, task, fleet, chunks, factor / 2, variant, ranks)
        times = (1 - factor) / (factor / 2)
        whole = {key: value + times * (value - short[key]) for key, value in long.items()}
    share = Work(whole["rank_tokens"], whole["rank_pairs"])
    training = training_time(share, model, layout, rates, steps=task.steps, skip_old=variant.skip_old,
                             reference=task.reference)
    return Prediction(
        task.document, gpus, name, engines, layout.data_parallel,
        whole["seconds"], min(whole["seconds_90"], whole["seconds"]),
        training.log_probs, training.update, training.sync, whole["sent"], whole["computed"], whole["least"],
        whole["busy"] / (engines * whole["seconds"]), whole["row_tokens"], whole["tokens"], factor < 1.0,
    )


def chunk_counts(task: Task) -> list[int]:
    draw = random.Random(f"{task.seed}/documents")
    lengths = (task.document * (1 + draw.uniform(-task.spread, task.spread)) for _ in range(task.documents))
    return [max(1, -(-round(length) // task.reading.chunk)) for length in lengths]


def _machine(reading: Reading, model: ModelSize, gpus: int, rates: Rates) -> tuple[Layout, Limits]:
    per_node = min(gpus, int(rates.gpus_per_node))
    prompt = reading.instructions + reading.question + reading.chunk + reading.memory + reading.ending
    config = Config()
    machines = Gpus(gpus // per_node, per_node, rates.memory_bytes)
    layout = derive_layout(model, machines, prompt + reading.memory, config)
    return layout, engine_limits(model, HEAD, layout, config.engine_memory_fraction, reading.block, rates)


def _read(
    reading: Reading, task: Task, fleet: Fleet, chunks: Sequence[int], factor: float, variant: Variant, ranks: int
) -> dict[str, float]:
    """Sums over a rollout of documents shortened by ``factor``; all of them grow linearly with it."""
    counts = [max(1, round(count * factor)) for count in chunks]
    trajectories = read_documents(reading, counts, task.group, task.seed)
    outcome: Outcome = simulate(trajectories, fleet)
    items = work_items(trajectories, trees=variant.trees)
    total, share = sum(items, Work(0, 0)), largest_share(items, ranks)
    rows = sum(work.tokens for work in work_items(trajectories, trees=False))
    return {
        "seconds": outcome.seconds, "seconds_90": outcome.share_done(0.9), "sent": outcome.sent,
        "computed": outcome.computed, "busy": sum(engine.busy for engine in outcome.engines),
        "least": least_computed(trajectories, reading.block), "row_tokens": rows, "tokens": total.tokens,
        "rank_tokens": share.tokens, "rank_pairs": share.pairs,
    }
