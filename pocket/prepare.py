"""Write the pocket profile's data: ``mem-agent pocket --output DIR [--seed N] [--task two-hop|sifter]``.

``DIR/train.jsonl`` depends on the seed; ``DIR/eval_<length>.json`` do not (the length counts chunks; the sifter has
none and says its name), so runs with different seeds are evaluated on the same held-out rows. Documents of evaluation
are never those of training, their generator is seeded apart. The sifter's sessions also lie in
``DIR/train.jsonl.docs``, where its reward finds them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..data.document_store import DocumentStore, store_folder
from ..system.cli import one_line_errors, whole_number
from ..system.files import replacing, write_atomically
from . import sifter, task

TRAIN_ROWS, EVAL_ROWS = 4096, 200
EVAL_SEED, FIRST_TRAIN_SEED = 1, 1000
LENGTHS = {"look-up": ("3", "8"), "two-hop": ("5",), "sifter": ("sifter",)}
"""Of each task's evaluation files."""


def drawn(name: str, seed: int, count: int, length: str = "3") -> Iterator[Any]:
    if name == "look-up":
        return task.make_examples(seed, count, int(length))
    return sifter.histories(seed, count) if name == "sifter" else task.two_hop_examples(seed, count)


def prepare(folder: Path, seed: int, name: str = "look-up") -> None:
    """Write the files; their content is a function of task and seed alone."""
    folder.mkdir(parents=True, exist_ok=True)
    train, module = folder / "train.jsonl", sifter if name == "sifter" else task
    documents = DocumentStore(store_folder(train))
    with replacing(train) as out:
        for index, example in enumerate(drawn(name, FIRST_TRAIN_SEED + seed, TRAIN_ROWS)):
            if name == "sifter":
                documents.add(sifter.stored(example))
            out.write(f"{json.dumps(module.train_row(index, example), ensure_ascii=False)}\n".encode())
    for length in LENGTHS[name]:
        entries = [module.eval_entry(*one) for one in enumerate(drawn(name, EVAL_SEED, EVAL_ROWS, length))]
        text = json.dumps(entries, ensure_ascii=False, indent=1)
        write_atomically(folder / f"eval_{length}.json", f"{text}\n".encode())


@one_line_errors("the same command writes them again")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="mem-agent pocket", description="Write the pocket profile's training and evaluation data.")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--seed", type=whole_number, default=1)
    parser.add_argument("--task", choices=LENGTHS, default="look-up")
    options = parser.parse_args(argv)
    prepare(options.output, options.seed, options.task)
    return 0
