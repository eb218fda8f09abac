"""Options that several commands of this room share, and the names that follow from them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..system.command_line_types import positive_number, whole_number
from ..system.errors import MemAgentError

LENGTHS = (50, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600)
"""The lengths of the published results."""


class OptionError(MemAgentError):
    """An option that cannot be used; says what is allowed."""


def eval_name(length: int) -> str:
    return f"eval_{length}.json"


def parse_lengths(text: str) -> tuple[int, ...]:
    """``"50 200"`` -> ``(50, 200)``. Raises OptionError."""
    words = text.split()
    wrong = [word for word in words if not word.isdecimal() or int(word) == 0]
    if wrong or not words:
        raise OptionError(f"length {(wrong or [''])[0]!r}: allowed: numbers of documents, such as 50 200")
    return tuple(dict.fromkeys(map(int, words)))


def add_options(parser: argparse._ActionsContainer, raw_is_required: bool) -> None:
    """--raw, --seed, --closed-book and --processes; the count has a name of its own in every command."""
    parser.add_argument("--raw", type=Path, nargs="+", metavar="FILE", required=raw_is_required,
                        help="HotpotQA, 2WikiMultiHopQA, MuSiQue or SQuAD files (.json, .jsonl, .parquet)")
    parser.add_argument("--seed", type=whole_number, default=42, help="choice of questions and documents (42)")
    parser.add_argument("--closed-book", type=Path, metavar="FILE",
                        help="verdict.json of closed_book: leave out what needs no document")
    parser.add_argument("--processes", type=positive_number, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="worker processes (one per core)")
