"""The trainer on tries against the trainer on rows, on one thread; and bfloat16 against float32.

The pocket model trains the rows of two rollouts of the pocket run. ``pocket_rows.json.gz`` has the converter's columns
of its first rollout (starting weights; siblings say different things) and of its last (trained weights; they mostly
say the same), recorded with the pack's own hooks, engine and router: 64 trajectories in groups of 8 each. Models of
random weights train made-up groups of the published shape. A ratio compares two trainers of one process that take
turns; a step holds forward and backward pass, clipping and AdamW.
"""

from __future__ import annotations

import gzip
import os
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from ..checkpoints.precision import FASTER_BY, product_rate
from ..config import Config
from ..training.rows import TrainRow, rows_from_train_data
from ..training.trainer import Trainer
from .outcome import Outcome, Sample, interleaved, ratio, timed

NAME = "trainer"
POCKET = Path(__file__).parents[1] / "pocket" / "start"
FIRST, LAST = "first", "last"
CHUNK, MEMORY = 640, 128
SIZES = {
    "27M": {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
            "intermediate_size": 1536, "vocab_size": 4096},
    "135M": {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
             "intermediate_size": 1536, "vocab_size": 49152},
}
"""135M is SmolLM2-135M's."""


def measure(quick: bool = False) -> list[Outcome]:
    torch.set_num_threads(1)
    lines = pocket_lines(FIRST, 8.0, 2 if quick else 5)
    if not quick:
        lines += pocket_lines(LAST, None, 5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for siblings, target, rounds in ((8, 2.5, 3), (16, 3.2, 2)):
            lines += group_lines("27M", folder, siblings, target, 1 if quick else rounds)
        return lines + bfloat16_lines(folder, 1 if quick else 3)


def pocket_lines(rollout: str, target: float | None, rounds: int) -> list[Outcome]:
    """The update, and both passes before it: the policy's log-probs and the reference's."""
    rows = pocket_rows(rollout)
    config = Config(hf_ckpt=str(POCKET), kl_coef=0.001, lr=0.0)
    trainers = {"tries": Trainer(config), "rows": Trainer(config, share=False)}
    old = trainers["tries"].log_probs(rows)
    calls: dict[str, Callable[[], object]] = {}
    for name, trainer in trainers.items():
        calls[f"{name} step"] = lambda t=trainer: t.train_step(rows, old, old)
        calls[f"{name} passes"] = lambda t=trainer: (t.log_probs(rows), t.reference_log_probs(rows))
    found = _samples(calls, rounds)
    return [
        ratio(NAME, f"update, pocket's {rollout} rollout: tries against rows", found["rows step"],
              found["tries step"], target),
        ratio(NAME, f"log-prob and reference passes, pocket's {rollout} rollout: tries against rows",
              found["rows passes"], found["tries passes"], 5.0 if target else None),
        _speed(f"update, pocket's {rollout} rollout, tries", rows, found["tries step"]),
    ]


def group_lines(size: str, folder: Path, siblings: int, target: float, rounds: int) -> list[Outcome]:
    rows = group_rows(siblings, SIZES[size]["vocab_size"])
    config = Config(hf_ckpt=str(random_model(size, folder)), kl_coef=0.0, lr=0.0, max_tokens_per_gpu=8192)
    old = [row.log_probs for row in rows]
    tries, plain = Trainer(config), Trainer(config, share=False)
    found = _samples({"tries": lambda: tries.train_step(rows, old), "rows": lambda: plain.train_step(rows, old)},
                     rounds)
    what = f"update, {size}, G {siblings}, chunk {CHUNK}, memory {MEMORY}"
    return [ratio(NAME, f"{what}: tries against rows", found["rows"], found["tries"], target),
            _speed(f"{what}, tries", rows, found["tries"])]


def bfloat16_lines(folder: Path, rounds: int) -> list[Outcome]:
    """SmolLM2-135M's shape in TRAIN_DTYPE=bfloat16 against float32, on all cores."""
    what = "135M, bfloat16 against float32"
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    times = product_rate(torch.bfloat16) / product_rate(torch.float32)
    if times < FASTER_BY:
        return [Outcome(NAME, f"update, {what}", target=3.0,
                        note=f"this processor multiplies bfloat16 at {times:.2f} of float32's rate")]
    rows = group_rows(2, SIZES["135M"]["vocab_size"])
    old = [row.log_probs for row in rows]
    model = str(random_model("135M", folder))
    calls: dict[str, Callable[[], object]] = {}
    for name in ("float32", "bfloat16"):
        trainer = Trainer(Config(hf_ckpt=model, kl_coef=0.0, lr=0.0, max_tokens_per_gpu=8192, train_dtype=name))
        calls[f"{name} step"] = lambda t=trainer: t.train_step(rows, old)
        calls[f"{name} log-probs"] = lambda t=trainer: t.log_probs(rows)
    found = _samples(calls, rounds)
    return [ratio(NAME, f"update, {what}", found["float32 step"], found["bfloat16 step"], 3.0),
            ratio(NAME, f"log-probs, {what}", found["float32 log-probs"], found["bfloat16 log-probs"])]


def _samples(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[Sample]]:
    for call in calls.values():  # nobody pays for what the first call sets up
        call()
    return interleaved({name: lambda c=call: timed(c) for name, call in calls.items()}, rounds)


def _speed(what: str, rows: Sequence[TrainRow], samples: Sequence[Sample]) -> Outcome:
    tokens = sum(len(row.tokens) for row in rows)
    return Outcome(NAME, what, tuple(tokens / s.cpu for s in samples), unit="tokens/s",
                   note=f"row tokens a CPU second; {tokens:,} in {len(rows)} rows")


# --- rows and models ------------------------------------------------------------------------------------------------


def pocket_rows(rollout: str) -> list[TrainRow]:
    """Of the FIRST or the LAST rollout."""
    packed = Path(__file__).with_name("pocket_rows.json.gz").read_bytes()
    return rows_from_train_data(orjson.loads(gzip.decompress(packed))[rollout])


def group_rows(siblings: int, vocabulary: int) -> list[TrainRow]:
    """One memory turn of a group, section first: 112 tokens of instruction and question and the chunk, which all
    share, then each one's own memory, 20 tokens that are everybody's, and a reply as long as the memory."""
    draw = random.Random(0)

    def tokens(count: int) -> list[int]:
        return draw.choices(range(vocabulary), k=count)

    shared = tokens(112 + CHUNK)
    return [
        TrainRow(shared + tokens(MEMORY) + [5] * 20 + tokens(MEMORY), MEMORY, [1] * MEMORY, [-1.0] * MEMORY,
                 1.0 if number % 2 else -1.0, number, MEMORY)
        for number in range(siblings)
    ]


def random_model(size: str, folder: Path) -> Path:
    """A Qwen3 of random weights without a tokenizer: the trainer's speed does not depend on what it learned."""
    if not (folder / size).exists():
        config = Qwen3Config(**SIZES[size], head_dim=64, tie_word_embeddings=True, max_position_embeddings=8192)
        Qwen3ForCausalLM(config).save_pretrained(folder / size)
    return folder / size
