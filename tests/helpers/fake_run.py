"""A made-up training run as a report finds it: seeded lines of ``metrics.jsonl``."""

from __future__ import annotations

import random
from pathlib import Path

import orjson


def write_training_run(folder: Path, *, rollouts: int = 60, evaluated_every: int = 20) -> Path:
    """Rewards rise from about 0.3 to about 0.8; eval/<length>/<metric> every so many rollouts."""
    folder.mkdir(parents=True)
    rng = random.Random(0)
    lines = []
    for number in range(rollouts):
        done = (number + 1) / rollouts
        right = 0.3 + 0.5 * done + rng.uniform(-0.05, 0.05)
        line = {"rollout": number, "reward": right, "accuracy": right, "mixed_groups": 0.6 - 0.3 * done,
                "loss": rng.gauss(0, 0.01), "kl": 0.1 * done}
        if evaluated_every and (number + 1) % evaluated_every == 0:
            line |= {"eval/50/sub_em": 0.4 + 0.4 * done, "eval/50/turns": 4.0}
        lines.append(orjson.dumps(line) + b"\n")
    (folder / "metrics.jsonl").write_bytes(b"".join(lines))
    return folder
