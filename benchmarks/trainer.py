"""The trainer on tries against the trainer on rows, and both against a plain matrix product, on one thread.

The pocket model trains real rows of the pocket run; models of 27M and 100M parameters train made-up groups. A ratio
compares two trainers of one process, with shared prefixes and without, that take turns. A share is the arithmetic that
the rows need (``work.py``), over what the same thread does in float32 products of 1024 x 1024 in the same round; the
step holds forward and backward pass, clipping and AdamW. A share on tries counts a shared prefix once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ..config import Config
from ..training.rows import TrainRow
from ..training.trainer import Trainer
from .outcome import Outcome, print_alone
from .random_model import SIZES, write_random_model
from .rows import FIRST, LAST, POCKET, group_rows, pocket_rows
from .stopwatch import Sample, faster, interleaved, timed
from .work import Shape, Work, as_rows, as_trees

NAME = "trainer"
CHUNK, MEMORY = 640, 128
PRODUCT, PRODUCTS = 1024, 60
TRIES, ROWS = "tries", "rows"


@dataclass(frozen=True)
class Case:
    """One model on one set of rows; ``target``: whether those of the pocket run hold."""

    label: str
    model: Path
    rows: Sequence[TrainRow]
    rounds: int
    target: bool = True
    reference: bool = False
    packed: int = 0


def measure(quick: bool = False) -> list[Outcome]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    outcomes: list[Outcome] = []
    for rollout, label in ((FIRST, "pocket"), (LAST, "pocket, trained weights' rows")):
        case = Case(label, POCKET, pocket_rows(rollout), 2 if quick else 5, rollout == FIRST, reference=True)
        outcomes += _pocket(case) if rollout == FIRST or not quick else []
    with tempfile.TemporaryDirectory() as name:
        for size, siblings, target, rounds in (("27M", 8, 2.5, 3), ("27M", 16, 3.2, 2), ("100M", 2, None, 3)):
            folder = write_random_model(size, Path(name) / size)
            rows = group_rows(siblings, CHUNK, MEMORY, SIZES[size]["vocab_size"])
            label = f"{size}, G {siblings}, chunk {CHUNK}, memory {MEMORY}"
            case = Case(label, folder, rows, 1 if quick else rounds, packed=8192)
            outcomes += _large(case, target, shares=siblings <= 8)
    return outcomes


# --- cases --------------------------------------------------------------------------------------------------------


def _pocket(case: Case) -> list[Outcome]:
    samples, shape = _samples(case)
    both = _added(samples, "log-probs", "reference")
    skipping = both | {f"{TRIES} passes": samples[f"{TRIES} reference"]}
    targets = (
        ("update", samples, "step", 8.0 if case.target else None),
        ("log-prob and reference passes", both, "passes", 5.0 if case.target else None),
        ("the same, without the log-probs that one step needs not", skipping, "passes", None),
    )
    return [
        *(_ratio(f"{what}, {case.label}", found, part, target) for what, found, part, target in targets),
        _speed(case, samples, TRIES, "step"),
        _speed(case, samples, TRIES, "log-probs"),
        *_shares(case, samples, shape, target=None),
    ]


def _large(case: Case, target: float | None, *, shares: bool) -> list[Outcome]:
    samples, shape = _samples(case)
    return [
        _ratio(f"update, {case.label}", samples, "step", target),
        _ratio(f"log-probs, {case.label}", samples, "log-probs", None),
        _speed(case, samples, TRIES, "step"),
        *(_shares(case, samples, shape, target=0.75) if shares else ()),
    ]


def _samples(case: Case) -> tuple[dict[str, list[Sample]], Shape]:
    """Of every part by either trainer (``tries log-probs``), and of the matrix product."""
    config = Config(hf_ckpt=str(case.model), kl_coef=0.001 if case.reference else 0.0, lr=0.0,
                    max_tokens_per_gpu=case.packed)
    trainers = {
        name: Trainer(config, share=sharing) for name, sharing in ((TRIES, True), (ROWS, False))
    }
    variants: dict[str, Callable[[], Sample]] = {}
    for name, trainer in trainers.items():
        for part, call in _parts(trainer, case):
            variants[f"{name} {part}"] = lambda call=call: timed(call)
    variants["product"] = _product()
    small = replace(case, rows=case.rows[:1])
    for trainer in trainers.values():  # nobody pays for what the first call sets up
        for _, call in _parts(trainer, small):
            call()
    variants["product"]()
    return interleaved(variants, case.rounds), _shape(trainers[ROWS])


def _parts(trainer: Trainer, case: Case) -> Iterator[tuple[str, Callable[[], object]]]:
    known = trainer.log_probs(case.rows[:1])[0][:1]
    old = [known * row.response_length for row in case.rows]  # any numbers: their values cost nothing
    yield "log-probs", lambda: trainer.log_probs(case.rows)
    if case.reference:
        yield "reference", lambda: trainer.reference_log_probs(case.rows)
    yield "step", lambda: trainer.train_step(case.rows, old, old if case.reference else None)


def _product() -> Callable[[], Sample]:
    a, b = torch.randn(PRODUCT, PRODUCT), torch.randn(PRODUCT, PRODUCT)
    return lambda: timed(lambda: [a @ b for _ in range(PRODUCTS)])


def _shape(trainer: Trainer) -> Shape:
    model = trainer.model.config
    body = sum(p.numel() for name, p in trainer.model.named_parameters() if p.dim() > 1 and ".layers." in name)
    output = trainer.bridge.padded_vocab_size * model.hidden_size
    return Shape(body, output, model.num_layers, model.kv_channels * model.num_attention_heads)


# --- lines --------------------------------------------------------------------------------------------------------


def _added(samples: Mapping[str, Sequence[Sample]], *parts: str) -> dict[str, list[Sample]]:
    """The passes of a rollout together, for either trainer, under the part ``passes``."""
    return {
        f"{name} passes": [
            Sample(sum(s.cpu for s in one), sum(s.wall for s in one))
            for one in zip(*(samples[f"{name} {part}"] for part in parts), strict=True)
        ]
        for name in (TRIES, ROWS)
    }


def _ratio(what: str, samples: Mapping[str, Sequence[Sample]], part: str, target: float | None) -> Outcome:
    used = {name: samples[f"{name} {part}"] for name in (TRIES, ROWS)}
    by_cpu, by_wall = faster(used[ROWS], used[TRIES])
    return Outcome(NAME, f"{what}: tries against rows", tuple(by_cpu), target=target,
                   wall=tuple(by_wall), samples=used)


def _speed(case: Case, samples: Mapping[str, Sequence[Sample]], name: str, part: str) -> Outcome:
    tokens = sum(len(row.tokens) for row in case.rows)
    used = samples[f"{name} {part}"]
    return Outcome(NAME, f"{part}, {case.label}, {name}", tuple(tokens / s.cpu for s in used), unit="tokens/s",
                   note=f"row tokens a CPU second; {tokens:,} in {len(case.rows)} rows, "
                        f"{as_trees(case.rows).tokens:,} as trees")


def _shares(case: Case, samples: Mapping[str, Sequence[Sample]], shape: Shape, target: float | None) -> list[Outcome]:
    work: dict[str, Work] = {ROWS: as_rows(case.rows), TRIES: as_trees(case.rows)}
    peaks = [2 * PRODUCT**3 * PRODUCTS / s.cpu for s in samples["product"]]
    lines = []
    for name in (ROWS, TRIES):
        flops = shape.flops(work[name], backward=True)
        used = samples[f"{name} step"]
        values = tuple(flops / s.cpu / peak for s, peak in zip(used, peaks, strict=True))
        lines.append(Outcome(NAME, f"share of a matrix product, step, {case.label}, {name}", values, unit="share",
                             target=target,
                             samples={"step": used, "product": samples["product"]},
                             note=f"{flops / 1e9:,.0f} GFLOP; product {max(peaks) / 1e9:.0f} GFLOP/s"))
    return lines


if __name__ == "__main__":
    print_alone(measure)
