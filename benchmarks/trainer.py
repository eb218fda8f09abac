"""The trainer on tries against the trainer on rows, and against TRL's GRPOTrainer, on one thread.

The pocket model trains the rows of two rollouts of the pocket run. ``pocket_rows.json.gz`` has the converter's columns
of its first rollout (starting weights; siblings say different things) and of its last (trained weights; they mostly
say the same), recorded with the pack's own hooks, engine and router: 64 trajectories in groups of 8 each. A model of
27M random weights trains made-up groups of the published shape. A ratio compares two trainers of one process that take
turns; a step holds forward and backward pass, clipping and AdamW, in float32.

TRL has an environment of its own (requirements/bench-trl.txt; TRL_VENV names another folder than .venv-trl) and runs
as a process that steps when told (``trl_worker.py``), so the two take turns. Both do one GRPO step without KL on the
256 rows of a pocket rollout; TRL pads micro-batches of 64 rows. Before anything is timed, their log-probs are
compared: they must be the same numbers. Every row is given an advantage, so that none is skipped: groups of equal
rewards have none, and cost ours nothing and TRL a full pass.
"""

import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from ..config import Config
from ..system.cli import process_environment
from ..training.rows import TrainRow, rows_from_train_data
from ..training.trainer import Trainer
from .outcome import Outcome, cpu_ratios, seconds

PACK = Path(__file__).parents[1]
POCKET = PACK / "pocket" / "start"
FIRST, LAST = "first", "last"
CHUNK, MEMORY, VOCABULARY = 640, 128, 4096


def random_model(folder: Path | str, vocabulary: int) -> None:
    """A Qwen3 of 27M random weights."""
    torch.manual_seed(0)
    Qwen3ForCausalLM(Qwen3Config(
        hidden_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4, intermediate_size=1536,
        head_dim=64, vocab_size=vocabulary, tie_word_embeddings=True,
        max_position_embeddings=8192, bos_token_id=None, eos_token_id=2, pad_token_id=0, dtype="float32",
    )).save_pretrained(folder)


def measure(quick: bool = False) -> list[Outcome]:
    """Rows as tries against rows: the update, and both passes before it, of the policy and of the reference."""
    torch.set_num_threads(1)
    lines, config = list[Outcome](), Config(hf_ckpt=str(POCKET), kl_coef=0.001, lr=0.0)
    for rollout, target, target_of_passes in ((FIRST, 8.0, 5.0), (LAST, None, None))[: 1 if quick else 2]:
        rows, what = pocket_rows(rollout), f"pocket's {rollout} rollout"
        old = Trainer(config).log_probs(rows)
        update = partial(Trainer.train_step, rows=rows, old_log_probs=old, ref_log_probs=old)
        lines += compared(f"update, {what}", config, rows, target, 2 if quick else 5, update)
        lines += compared(f"log-prob and reference passes, {what}", config, rows, target_of_passes, 2 if quick else 5,
                          lambda trainer, rows=rows: (trainer.log_probs(rows), trainer.reference_log_probs(rows)))
    with tempfile.TemporaryDirectory() as model:
        random_model(model, VOCABULARY)
        config = Config(hf_ckpt=model, kl_coef=0.0, lr=0.0, max_tokens_per_gpu=8192)
        for siblings, target, rounds in ((8, 2.5, 3), (16, 3.2, 2)):
            rows = group_rows(siblings, VOCABULARY)
            update = partial(Trainer.train_step, rows=rows, old_log_probs=[row.log_probs for row in rows])
            lines += compared(f"update, 27M, G {siblings}, chunk {CHUNK}, memory {MEMORY}", config, rows, target,
                              1 if quick else rounds, update)
    return lines


def compared(what: str, config: Config, rows: list[TrainRow], target: float | None, rounds: int,
             call: Callable[[Trainer], object]) -> list[Outcome]:
    tries, plain = partial(call, Trainer(config)), partial(call, Trainer(config, share=False))
    for each in (tries, plain):  # nobody pays for what the first call sets up
        each()
    tokens = sum(len(row.tokens) for row in rows)
    return [
        Outcome(f"{what}: tries against rows", cpu_ratios(plain, tries, rounds), target=target),
        Outcome(f"{what}, tries", (tokens / seconds(tries, time.process_time),), "tokens/s",
                note=f"row tokens a CPU second; {tokens:,} in {len(rows)} rows"),
    ]


# --- TRL ------------------------------------------------------------------------------------------------------------


def against_trl(quick: bool = False) -> list[Outcome]:
    """The trainer's step against TRL's."""
    torch.set_num_threads(1)
    folder = os.environ.get("TRL_VENV") or f"{sys.prefix}-trl"
    script = 'source "$1/_common.sh"; install_once "$2" trl "$(fingerprint bench-trl)" install_beside "$2" bench-trl'
    subprocess.run(["bash", "-c", script, "bash", PACK, folder], stdout=sys.stderr, check=True,
                   env=os.environ | {"VENV": sys.prefix})
    trainer = Trainer(Config(hf_ckpt=str(POCKET), kl_coef=0.0, lr=0.0))
    return [compared_with_trl(trainer, folder, rollout, target, 2 if quick else 5)
            for rollout, target in ((FIRST, 7.0), (LAST, None))[: 1 if quick else 2]]


def compared_with_trl(trainer: Trainer, folder: str, rollout: str, target: float | None, rounds: int) -> Outcome:
    rows = [replace(row, advantage=row.advantage or 0.1) for row in pocket_rows(rollout)]
    old = trainer.log_probs(rows)
    quiet = {"HF_HUB_OFFLINE": "1", "WANDB_DISABLED": "true", "OMP_NUM_THREADS": "1"}
    command = [f"{folder}/bin/python", "-P", Path(__file__).with_name("trl_worker.py")]
    with tempfile.TemporaryDirectory() as scratch, subprocess.Popen(
        command, env=os.environ | process_environment(1) | quiet, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    ) as process:
        def ask(content: Any) -> Any:
            print(json.dumps(content), file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())

        version = ask({"model": str(POCKET), "micro_batch": 64, "scratch": scratch,
                       "rows": [[row.tokens, row.response_length, row.advantage] for row in rows]})
        ours, trl = sum(map(sum, old)), ask("score")
        assert abs(ours - trl) <= 1e-4 * abs(ours), f"other arithmetic: log-probs {trl:.6g}, ours {ours:.6g}"
        times = [(ask("step"), seconds(lambda: trainer.train_step(rows, old), time.process_time))
                 for _ in range(1 + rounds)]
    return Outcome(f"step, pocket's {rollout} rollout: times TRL's speed", tuple(a / b for a, b in times[1:]),
                   target=target, note=f"TRL {version}; log-probs add to {ours:.2f} in ours, {trl:.2f} in TRL's")


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
