"""Write the pocket profile's data: ``mem-agent pocket --output DIR [--seed N] [--task two-hop]``.

``DIR/train.jsonl`` depends on the seed; ``DIR/eval_<chunks>.json`` do not, so runs with different seeds are evaluated
on the same held-out documents. Documents of evaluation are never those of training: their generator is seeded apart.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..system.one_line_errors import one_line_errors
from .task import PocketExample, make_examples, write_eval_json, write_train_jsonl
from .two_hop import TwoHopShape, two_hop_examples

TRAIN_ROWS, EVAL_ROWS = 4096, 200
_EVAL_SEED = 1
_TRAIN_SEED = 1000
"""Added to the run's seed: no run trains on the documents of seed 1."""

Maker = Callable[[int, int, int], Iterator[PocketExample]]
"""Examples of a seed: how many, of how many chunks."""


def _two_hop(seed: int, count: int, chunks: int) -> Iterator[PocketExample]:
    return two_hop_examples(seed, count, TwoHopShape(stating=chunks - 1))


TASKS: dict[str, tuple[Maker, int, tuple[int, ...]]] = {
    "look-up": (make_examples, 3, (3, 8)),
    "two-hop": (_two_hop, 5, (5,)),
}
"""Task -> (its examples, chunks in training, chunks in evaluation)."""


def prepare(folder: Path, seed: int, task: str = "look-up") -> None:
    """Write the files; their content is a function of task and seed alone."""
    make, train_chunks, eval_chunks = TASKS[task]
    folder.mkdir(parents=True, exist_ok=True)
    write_train_jsonl(folder / "train.jsonl", make(_TRAIN_SEED + seed, TRAIN_ROWS, train_chunks))
    for chunks in eval_chunks:
        write_eval_json(folder / f"eval_{chunks}.json", make(_EVAL_SEED, EVAL_ROWS, chunks))


@one_line_errors("the same command writes them again")
def main(argv: Sequence[str] | None = None) -> int:
    description = "Write the pocket profile's training and evaluation data."
    parser = argparse.ArgumentParser(prog="mem-agent pocket", description=description)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--task", choices=TASKS, default="look-up")
    options = parser.parse_args(argv)
    prepare(options.output, options.seed, options.task)
    return 0


if __name__ == "__main__":
    sys.exit(main())
