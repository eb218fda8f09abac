"""The trainer on tries against the trainer on rows, on one thread; bfloat16 against float32.

The pocket model trains the rows of two rollouts of the pocket run. ``pocket_rows.json.gz`` has the converter's columns
of its first rollout (starting weights; siblings say different things) and of its last (trained weights; they mostly
say the same), recorded with the pack's own hooks, engine and router: 64 trajectories in groups of 8 each. A model of
27M random weights trains made-up groups of the published shape. A ratio compares two trainers of one process that take
turns; a step holds forward and backward pass, clipping and AdamW. SmolLM2-135M's shape is trained in bfloat16 and in
float32 on all cores, where the processor multiplies bfloat16 faster.
"""

from __future__ import annotations

import gzip
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import orjson
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from ..config import Config
from ..training.rows import TrainRow, rows_from_train_data
from ..training.trainer import Trainer
from .outcome import Outcome, cpu_seconds, ratios, wall_seconds

NAME = "trainer"
POCKET = Path(__file__).parents[1] / "pocket" / "start"
FIRST, LAST = "first", "last"
CHUNK, MEMORY = 640, 128
SHAPES: dict[str, dict[str, int]] = {
    "27M": {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
            "intermediate_size": 1536, "vocab_size": 4096},
    "135M": {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
             "intermediate_size": 1536, "vocab_size": 49152},  # SmolLM2-135M's
}


def measure(quick: bool = False) -> list[Outcome]:
    torch.set_num_threads(1)
    lines = pocket_lines(FIRST, 8.0, 5.0, 2 if quick else 5)
    if not quick:
        lines += pocket_lines(LAST, None, None, 5)
    with tempfile.TemporaryDirectory() as folder:
        for shape in SHAPES:
            config = Qwen3Config(**SHAPES[shape], head_dim=64, tie_word_embeddings=True, max_position_embeddings=8192)
            Qwen3ForCausalLM(config).save_pretrained(f"{folder}/{shape}")
        for siblings, target, rounds in ((8, 2.5, 3), (16, 3.2, 2)):
            lines += group_lines(f"{folder}/27M", siblings, target, 1 if quick else rounds)
        return lines + bfloat16_lines(f"{folder}/135M", 1 if quick else 3)


def pocket_lines(rollout: str, target: float | None, target_of_passes: float | None, rounds: int) -> list[Outcome]:
    """The update, and both passes before it: the policy's log-probs and the reference's."""
    rows, config = pocket_rows(rollout), Config(hf_ckpt=str(POCKET), kl_coef=0.001, lr=0.0)
    tries, plain = Trainer(config), Trainer(config, share=False)
    old, what = tries.log_probs(rows), f"pocket's {rollout} rollout"
    return [
        *_lines(f"update, {what}", rows, target, rounds,
                lambda: tries.train_step(rows, old, old), lambda: plain.train_step(rows, old, old)),
        *_lines(f"log-prob and reference passes, {what}", rows, target_of_passes, rounds,
                lambda: (tries.log_probs(rows), tries.reference_log_probs(rows)),
                lambda: (plain.log_probs(rows), plain.reference_log_probs(rows))),
    ]


def group_lines(model: str, siblings: int, target: float, rounds: int) -> list[Outcome]:
    rows = group_rows(siblings, SHAPES["27M"]["vocab_size"])
    config = Config(hf_ckpt=model, kl_coef=0.0, lr=0.0, max_tokens_per_gpu=8192)
    old = [row.log_probs for row in rows]
    tries, plain = Trainer(config), Trainer(config, share=False)
    return _lines(f"update, 27M, G {siblings}, chunk {CHUNK}, memory {MEMORY}", rows, target, rounds,
                  lambda: tries.train_step(rows, old), lambda: plain.train_step(rows, old))


def bfloat16_lines(model: str, rounds: int) -> list[Outcome]:
    what = "135M, bfloat16 against float32"
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    if not torch.cpu.get_capabilities().get("avx512_bf16"):
        return [Outcome(NAME, f"update, {what}", target=3.0, note="this processor has no products of bfloat16")]
    rows = group_rows(2, SHAPES["135M"]["vocab_size"])
    old = [row.log_probs for row in rows]
    config = Config(hf_ckpt=model, kl_coef=0.0, lr=0.0, max_tokens_per_gpu=8192, train_dtype="float32")
    plain, half = Trainer(config), Trainer(config.replace(train_dtype="bfloat16"))
    found = []
    for name, target, call in (("update", 3.0, lambda trainer: trainer.train_step(rows, old)),
                               ("log-probs", None, lambda trainer: trainer.log_probs(rows))):
        for trainer in (plain, half):
            call(trainer)
        values = ratios(lambda call=call: wall_seconds(lambda: call(plain)),
                        lambda call=call: wall_seconds(lambda: call(half)), rounds)
        found.append(Outcome(NAME, f"{name}, {what}", values, target=target))
    return found


def _lines(what: str, rows: list[TrainRow], target: float | None, rounds: int, tries: Callable[[], object],
           plain: Callable[[], object]) -> list[Outcome]:
    for call in (tries, plain):  # nobody pays for what the first call sets up
        call()
    tokens = sum(len(row.tokens) for row in rows)
    return [
        Outcome(NAME, f"{what}: tries against rows", target=target,
                values=ratios(lambda: cpu_seconds(plain), lambda: cpu_seconds(tries), rounds)),
        Outcome(NAME, f"{what}, tries", (tokens / cpu_seconds(tries),), unit="tokens/s",
                note=f"row tokens a CPU second; {tokens:,} in {len(rows)} rows"),
    ]


# --- rows -----------------------------------------------------------------------------------------------------------


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
