"""Rows to train on, and a program that trains on them as one of several ranks.

Run as ``python tests/helpers/trainer_steps.py MODEL OUT TP OTHER``: three steps, then a checkpoint in OUT, a
fourth step; then a step from the run in OTHER, which one process wrote and whose newest checkpoint is damaged; and
``OUT/result.json`` with what rank 0 saw.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import psutil
import torch

from mem_agent.config import Config
from mem_agent.training.rows import TrainRow

# Idle OpenMP threads spin: with other processes on the cores, two of them are many times slower than one.
torch.set_num_threads(1)


def make_rows(trajectories: int = 4, vocab: int = 512, seed: int = 0) -> list[TrainRow]:
    """Trajectories of one to three turns with uneven lengths, partly masked; the last is fully masked."""
    rng = random.Random(seed)
    rows = []
    for rollout_id in range(trajectories):
        lengths, last = [rng.randint(1, 9) for _ in range(rng.randint(1, 3))], rollout_id == trajectories - 1
        masks = [[int(rng.random() < 0.8 and not last) for _ in range(length)] for length in lengths]
        total = sum(map(sum, masks))
        for length, mask in zip(lengths, masks, strict=True):
            tokens = [rng.randrange(vocab) for _ in range(rng.randint(1, 30) + length)]
            rows.append(TrainRow(tokens, length, mask, [-6.0] * length, (-1.0) ** rollout_id, rollout_id, total))
    return rows


def make_config(model: Path | str, **settings) -> Config:
    defaults = {"lr": 1e-3, "temperature": 0.7, "max_tokens_per_gpu": 64, "kl_coef": 0.05}
    return Config(hf_ckpt=str(model), **(defaults | settings))


def listening(process: psutil.Process) -> set[str]:
    """The addresses that it listens on for TCP."""
    return {one.laddr.ip.removeprefix("::ffff:") for one in process.net_connections("tcp") if one.status == "LISTEN"}


def train(trainer, rows: list[TrainRow], steps: int) -> list[dict[str, float]]:
    """Off-policy from the second step on, so that ratios, clipping and KL all take part."""
    old = trainer.log_probs(rows)
    reference = trainer.reference_log_probs(rows) if trainer.reference is not None else None
    return [trainer.train_step(rows, old, reference) for _ in range(steps)]


def main(model: str, out: str, tp: int, other: str) -> None:
    from safetensors.torch import save_file

    from mem_agent.checkpoints import checkpoint
    from mem_agent.training import ranks
    from mem_agent.training.trainer import Trainer

    trainer = Trainer(make_config(model, tp=tp, train_procs=2))
    rows = make_rows(vocab=trainer.bridge.vocab_size)
    steps = train(trainer, rows, 3)
    log_probs = trainer.log_probs(rows)
    checkpoint.save(out, 2, trainer, {"rollout": 2})
    exported = trainer.export_hf()
    resumed = train(trainer, rows, 1)
    alone = trainer.sft_step(rows[:1], lr=0.0)
    assert checkpoint.load(other, trainer) == {"rollout": 0}
    whole = str(Path(other) / "iter_0000000")
    loaded, started = trainer.export_hf(), Trainer(make_config(model, tp=tp, train_procs=2, torch_dist=whole))
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in started.export_hf().items())
    taken_over = train(trainer, rows, 1)
    if torch.distributed.get_rank() == 0:
        save_file(exported, Path(out) / "exported.safetensors")
        result = {"steps": steps, "log_probs": log_probs, "resumed": resumed, "alone": alone,
                  "taken_over": taken_over, "addresses": sorted(listening(psutil.Process()))}
        (Path(out) / "result.json").write_text(json.dumps(result))
    else:
        assert exported == {}
    ranks.leave()  # as a run does


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
