"""Options that several commands of this room share, and the names that follow from them."""

from __future__ import annotations

import argparse
import os
from enum import StrEnum
from pathlib import Path

from ..system.command_line_types import positive_number, whole_number
from ..system.errors import MemAgentError

LENGTHS = (50, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600)
"""The lengths of the published results."""
INDEX_ONLY_ABOVE = 10_000
"""Longer documents are given by numbers, in the published files as well."""


class Layout(StrEnum):
    """Which distractors get in, and where documents stand; the values are options."""

    CLEAN = "clean"
    """The default: no distractor holds an answer, every order is equally likely."""
    KEEP_OWN = "keep-distractors"
    """The same, but with all paragraphs that came with the question."""
    PUBLISHED = "published-layout"
    """As the published generators place them."""


class OptionError(MemAgentError):
    """An option that cannot be used; says what is allowed."""


def eval_name(length: int) -> str:
    return f"eval_{length}.json"


def parse_lengths(text: str) -> tuple[int, ...]:
    """``"50 200"`` -> ``(50, 200)``. Raises OptionError."""
    words = text.split()
    wrong = [word for word in words if not word.isdecimal() or int(word) == 0]
    if wrong or not words:
        raise OptionError(f"length {(wrong or [''])[0]!r:.40}: allowed: numbers above 0, such as 50 200")
    return tuple(dict.fromkeys(map(int, words)))


def add_options(parser: argparse._ActionsContainer, raw_is_required: bool) -> None:
    """All but the count, which has a name of its own in every command."""
    parser.add_argument("--raw", type=Path, nargs="+", metavar="FILE", required=raw_is_required,
                        help="HotpotQA, 2WikiMultiHopQA, MuSiQue or SQuAD files (.json, .jsonl, .parquet)")
    parser.add_argument("--seed", type=whole_number, default=42, help="choice of questions and documents (42)")
    parser.add_argument("--closed-book", type=Path, metavar="FILE",
                        help="verdict.json of closed_book: leave out what needs no document")
    parser.add_argument("--published-questions", type=Path, metavar="FILE",
                        help="ask the questions of a published eval_<n>.json, which names rows of the raw file")
    parser.add_argument(f"--{Layout.KEEP_OWN}", action="store_true",
                        help="keep all paragraphs of a question, also other ones that hold its answer")
    parser.add_argument(f"--{Layout.PUBLISHED}", action="store_true",
                        help="place documents as the published generators do: all paragraphs of a question at the "
                        "same places in every document of a length, others of any content, text as the data has it")
    parser.add_argument("--processes", type=positive_number, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="worker processes (one per core)")


def layout_of(args: argparse.Namespace) -> Layout:
    """Raises OptionError."""
    if args.keep_distractors and args.published_layout:
        raise OptionError(f"--{Layout.KEEP_OWN}: --{Layout.PUBLISHED} keeps them already; give one of the two")
    return Layout.PUBLISHED if args.published_layout else Layout.KEEP_OWN if args.keep_distractors else Layout.CLEAN


def check_published(args: argparse.Namespace, count: int | None, count_option: str) -> None:
    """Raises OptionError: an option chooses questions that ``--published-questions`` names."""
    if not args.published_questions:
        return
    if count is not None or args.closed_book:
        other = count_option if count is not None else "--closed-book"
        raise OptionError(f"{other}: the questions are those of --published-questions; give one of the two")
    if len(args.raw) > 1:
        raise OptionError("--published-questions names rows of one file; give hotpot_dev_distractor_v1.json alone")
