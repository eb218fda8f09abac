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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

from ..data.document_store import DocumentWriter, store_folder
from ..system.command_line_types import whole_number
from ..system.files import replacing, write_atomically
from ..system.one_line_errors import one_line_errors
from . import sifter
from .mem1_rows import mem1_rows
from .task import PocketExample, document_eval_entry, document_train_row, make_examples
from .two_hop import TwoHopShape, two_hop_examples

TRAIN_ROWS, EVAL_ROWS = 4096, 200
EVAL_SEED = 1
_TRAIN_SEED = 1000
"""Added to the run's seed, which is at least 0: no run trains on the documents of seed 1."""

Maker = Callable[[int, int, int], Iterator[PocketExample]]
"""Examples of a seed: how many, of how many chunks."""


@dataclass(frozen=True)
class Task:
    """The rows of a task's files."""

    train: Callable[[int], Iterator[Mapping[str, Any]]]
    """With the seed of the generator."""
    evaluate: Mapping[str, Callable[[int], Iterator[Mapping[str, Any]]]]
    """By the ``<length>`` of the file's name."""
    documents: Callable[[int], Iterator[str]] = lambda seed: iter(())
    """What belongs into the store beside the training file."""


def _of_documents(make: Maker, train_chunks: int, eval_chunks: Sequence[int]) -> Task:
    def train(seed: int) -> Iterator[Mapping[str, Any]]:
        return map(document_train_row, make(seed, TRAIN_ROWS, train_chunks))

    def entries(chunks: int, seed: int) -> Iterator[Mapping[str, Any]]:
        return starmap(document_eval_entry, enumerate(make(seed, EVAL_ROWS, chunks)))

    return Task(train, {str(chunks): partial(entries, chunks) for chunks in eval_chunks})


def _two_hop(seed: int, count: int, chunks: int) -> Iterator[PocketExample]:
    return two_hop_examples(seed, count, TwoHopShape(stating=chunks - 1))


TASKS: Mapping[str, Task] = {
    "look-up": _of_documents(make_examples, 3, (3, 8)),
    "two-hop": _of_documents(_two_hop, 5, (5,)),
    "mem1": replace(_of_documents(make_examples, 3, (3, 8)), train=lambda seed: mem1_rows(seed, TRAIN_ROWS)),
    "sifter": Task(
        lambda seed: starmap(sifter.train_row, enumerate(sifter.histories(seed, TRAIN_ROWS))),
        {"sifter": lambda seed: starmap(sifter.eval_entry, enumerate(sifter.histories(seed, EVAL_ROWS)))},
        lambda seed: map(sifter.stored, sifter.histories(seed, TRAIN_ROWS)),
    ),
}


def prepare(folder: Path, seed: int, name: str = "look-up") -> None:
    """Write the files; their content is a function of task and seed alone."""
    assert seed >= 0, "-999 is the seed of what is held out"
    task = TASKS[name]
    folder.mkdir(parents=True, exist_ok=True)
    train = folder / "train.jsonl"
    with DocumentWriter(store_folder(train)) as documents:  # held until the rows that refer to it are there as well
        for text in task.documents(_TRAIN_SEED + seed):
            documents.add(text)
        with replacing(train) as out:
            rows = task.train(_TRAIN_SEED + seed)
            out.writelines(f"{json.dumps(row, ensure_ascii=False)}\n".encode() for row in rows)
    for length, entries in task.evaluate.items():
        text = json.dumps(list(entries(EVAL_SEED)), ensure_ascii=False, indent=1)
        write_atomically(folder / f"eval_{length}.json", f"{text}\n".encode())


@one_line_errors("the same command writes them again")
def main(argv: Sequence[str] | None = None) -> int:
    description = "Write the pocket profile's training and evaluation data."
    parser = argparse.ArgumentParser(prog="mem-agent pocket", description=description)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--seed", type=whole_number, default=1)
    parser.add_argument("--task", choices=TASKS, default="look-up")
    options = parser.parse_args(argv)
    prepare(options.output, options.seed, options.task)
    return 0


if __name__ == "__main__":
    sys.exit(main())
