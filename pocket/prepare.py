"""Write the pocket profile's data: ``python -m mem_agent.pocket.prepare --output DIR [--seed N]``.

``DIR/train.jsonl`` depends on the seed; ``DIR/eval_<chunks>.json`` do not, so runs with different seeds are evaluated
on the same held-out documents. Documents of evaluation are never those of training: their generator is seeded apart.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .task import write_eval_json, write_train_jsonl

TRAIN_ROWS, EVAL_ROWS = 4096, 200
TRAIN_CHUNKS, EVAL_CHUNKS = 3, (3, 8)
_EVAL_SEED = 1
_TRAIN_SEED = 1000
"""Added to the run's seed: no run trains on the documents of seed 1."""


def prepare(folder: Path, seed: int) -> None:
    """Write what is missing; the content is a function of the seed alone."""
    folder.mkdir(parents=True, exist_ok=True)
    write_train_jsonl(folder / "train.jsonl", _TRAIN_SEED + seed, TRAIN_ROWS, TRAIN_CHUNKS)
    for chunks in EVAL_CHUNKS:
        write_eval_json(folder / f"eval_{chunks}.json", _EVAL_SEED, EVAL_ROWS, chunks)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the pocket profile's training and evaluation data.")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    prepare(options.output, options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
