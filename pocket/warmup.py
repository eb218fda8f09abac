"""Make the pocket profile's starting weights with the pack's own trainer.

    python -m mem_agent.pocket.warmup --output pocket/start

Two supervised stages (rows: ``habits.py``): first the ability, until the model does everything right; then a short
mix of good and bad memory habits, after which it still can, but often does not. The shipped ``start/`` folder is this
command's output, with float16 weights; the figures it reached are in ``README.md`` of this folder.
"""

from __future__ import annotations

import argparse
import logging
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..checkpoints.hf_folder import save_weights
from ..config import Config
from ..system.logging_setup import start_logging
from ..training.rows import TrainRow
from . import sifter, sifter_rows, two_hop_rows
from . import tokenizer as pocket_tokenizer
from .habits import AbilityMix, Gate, Habits, Row, RowMaker, Shape, ability_rows, mixed_rows
from .model import PocketModel, save_initial
from .two_hop import TwoHopShape

if TYPE_CHECKING:
    from ..training.trainer import Trainer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """A supervised stage: ``steps`` optimizer steps of ``rows`` rows, linear warm-up, then cosine to ``floor``."""

    steps: int
    rows: int
    lr: float
    warmup: int
    floor: float

    def lr_at(self, step: int) -> float:
        """Learning rate of step 0, 1, ..."""
        done = (step + 1 - self.warmup) / max(1, self.steps - self.warmup)
        cosine = self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * max(0.0, done)))
        return self.lr * min((step + 1) / self.warmup, cosine)


ABILITY = Stage(steps=1500, rows=24, lr=1.5e-3, warmup=60, floor=0.05)
RANKING = Stage(steps=2500, rows=24, lr=2e-3, warmup=60, floor=0.05)
MIXED = Stage(steps=160, rows=32, lr=5e-4, warmup=10, floor=0.1)
MIX = AbilityMix()
HABITS = Habits(good=0.55, distractor=0.28)
GATE = Gate(finish=0.35, hasty=0.06)
TWO_HOP_GOOD = 0.6
LARGE = PocketModel()
SMALL = PocketModel(hidden=128, head_dim=32, ffn=256, max_positions=256)
"""Of the sifter task; 0.7 million weights."""


def train_stage(trainer: Trainer, stage: Stage, rows: Iterator[Row], name: str) -> None:
    """Run one stage; logs the loss every 50 steps."""
    began, tokens, losses = time.monotonic(), 0, []
    for step in range(stage.steps):
        batch = [_train_row(number, *next(rows)) for number in range(stage.rows)]
        losses.append(trainer.sft_step(batch, stage.lr_at(step))["loss"])
        tokens += sum(len(row.tokens) for row in batch)
        if (step + 1) % 50 == 0:
            mean = sum(losses[-50:]) / 50
            seconds = time.monotonic() - began
            logger.info("%s step %d, %.2fM tokens, %.0f s, loss %.3f", name, step + 1, tokens / 1e6, seconds, mean)


def _train_row(number: int, prompt: list[int], response: list[int]) -> TrainRow:
    size = len(response)
    return TrainRow([*prompt, *response], size, [1] * size, [0.0] * size, 0.0, number, float(size))


@dataclass(frozen=True)
class Task:
    """What a start is made for: its tokenizer, and the rows of the two stages."""

    save_tokenizer: Callable[[Path], Any]
    prompts: Path
    ability: Callable[[Any, Path, int], Iterator[Row]]
    """Rows with a tokenizer, templates and a seed."""
    mixed: Callable[[Any, Path, int], Iterator[Row]]
    model: PocketModel = LARGE
    stage: Stage = ABILITY
    """The first one."""


def _two_hop(good: float) -> Callable[[Any, Path, int], Iterator[Row]]:
    return lambda tokenizer, prompts, seed: two_hop_rows.rows_of_both(tokenizer, prompts, TwoHopShape(), seed, good)


TASKS = {
    "look-up": Task(
        pocket_tokenizer.save,
        pocket_tokenizer.PROMPTS,
        lambda tokenizer, prompts, seed: ability_rows(RowMaker(tokenizer, prompts, Shape()), seed, MIX),
        lambda tokenizer, prompts, seed: mixed_rows(RowMaker(tokenizer, prompts, Shape()), seed, HABITS, GATE),
    ),
    "two-hop": Task(two_hop_rows.save_tokenizer, two_hop_rows.PROMPTS, _two_hop(1.0), _two_hop(TWO_HOP_GOOD)),
    "sifter": Task(
        sifter_rows.save_tokenizer, sifter.PROMPTS,
        sifter_rows.ability_rows, sifter_rows.mixed_rows,
        SMALL,
        RANKING,
    ),
}


def make_start(output: Path, task: Task, prompts: Path, seed: int) -> None:
    """Both stages from random weights, with these templates; writes ``output`` and, beside it, the ability model
    ``<output>-ability``."""
    from ..training.trainer import Trainer

    with tempfile.TemporaryDirectory() as scratch:
        initial, ability = Path(scratch) / "initial", output.with_name(output.name + "-ability")
        tokenizer = task.save_tokenizer(initial)
        save_initial(initial, replace(task.model, vocab=-(-len(tokenizer) // 128) * 128), seed)
        _stage_model(Trainer, initial, ability, task.stage, task.ability(tokenizer, prompts, seed), "ability")
        _stage_model(Trainer, ability, output, MIXED, task.mixed(tokenizer, prompts, seed), "habits")


def _stage_model(make_trainer, source: Path, target: Path, stage: Stage, rows: Iterator[Row], name: str) -> None:
    config = Config(
        hf_ckpt=str(source), kl_coef=0.0, weight_decay=0.05, adam_beta2=0.95, max_tokens_per_gpu=2048, clip_grad=1.0
    )
    trainer = make_trainer(config)
    train_stage(trainer, stage, rows, name)
    shutil.copytree(source, target, dirs_exist_ok=True)
    tensors = {key: tensor.to(torch.float16) for key, tensor in trainer.export_hf().items()}
    save_weights(tensors, target / "model.safetensors")


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the pocket profile's starting weights.")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--task", choices=TASKS, default="look-up")
    parser.add_argument("--prompts", type=Path, help="templates that the rows are asked with (default: the task's)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    start_logging()
    task = TASKS[options.task]
    make_start(options.output, task, options.prompts or task.prompts, options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
