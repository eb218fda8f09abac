"""Write the pocket profile's data: ``mem-agent pocket --output DIR [--seed N] [--task two-hop|mem1|sifter]``.

``DIR/train.jsonl`` depends on the seed; ``DIR/eval_<length>.json`` do not (the length counts chunks; the sifter has
none and says its name), so runs with different seeds are evaluated on the same held-out rows. Documents of evaluation
are never those of training, their generator is seeded apart. The sifter's sessions also lie in
``DIR/train.jsonl.docs``, where its reward finds them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..data.document_store import DocumentWriter, store_folder
from ..system.command_line_types import whole_number
from ..system.files import replacing, write_atomically
from ..system.one_line_errors import one_line_errors
from . import sifter, task

TRAIN_ROWS, EVAL_ROWS = 4096, 200
EVAL_SEED, FIRST_TRAIN_SEED = 1, 1000
LENGTHS = {"look-up": ("3", "8"), "two-hop": ("5",), "mem1": ("3", "8"), "sifter": ("sifter",)}
"""Of each task's evaluation files."""


def prepare(folder: Path, seed: int, name: str = "look-up") -> None:
    """Write the files; their content is a function of task and seed alone."""
    folder.mkdir(parents=True, exist_ok=True)
    train = folder / "train.jsonl"
    with DocumentWriter(store_folder(train)) as documents:  # held until the rows that refer to it are there as well
        for history in sifter.histories(FIRST_TRAIN_SEED + seed, TRAIN_ROWS) if name == "sifter" else ():
            documents.add(sifter.stored(history))
        with replacing(train) as out:
            rows = train_rows(name, FIRST_TRAIN_SEED + seed)
            out.writelines(f"{json.dumps(row, ensure_ascii=False)}\n".encode() for row in rows)
    for length in LENGTHS[name]:
        text = json.dumps(list(eval_entries(name, length)), ensure_ascii=False, indent=1)
        write_atomically(folder / f"eval_{length}.json", f"{text}\n".encode())


def train_rows(name: str, seed: int) -> Iterator[dict[str, Any]]:
    match name:
        case "look-up":
            return map(task.train_row, task.make_examples(seed, TRAIN_ROWS))
        case "two-hop":
            return map(task.train_row, task.two_hop_examples(seed, TRAIN_ROWS))
        case "mem1":
            return task.mem1_rows(seed, TRAIN_ROWS)
    return map(sifter.train_row, range(TRAIN_ROWS), sifter.histories(seed, TRAIN_ROWS))


def eval_entries(name: str, length: str) -> Iterator[dict[str, Any]]:
    match name:
        case "sifter":
            return map(sifter.eval_entry, range(EVAL_ROWS), sifter.histories(EVAL_SEED, EVAL_ROWS))
        case "two-hop":
            return map(task.eval_entry, range(EVAL_ROWS), task.two_hop_examples(EVAL_SEED, EVAL_ROWS))
    return map(task.eval_entry, range(EVAL_ROWS), task.make_examples(EVAL_SEED, EVAL_ROWS, int(length)))


@one_line_errors("the same command writes them again")
def main(argv: Sequence[str] | None = None) -> int:
    description = "Write the pocket profile's training and evaluation data."
    parser = argparse.ArgumentParser(prog="mem-agent pocket", description=description)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--seed", type=whole_number, default=1)
    parser.add_argument("--task", choices=LENGTHS, default="look-up")
    options = parser.parse_args(argv)
    prepare(options.output, options.seed, options.task)
    return 0


if __name__ == "__main__":
    sys.exit(main())
