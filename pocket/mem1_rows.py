"""Replies that teach the pocket model MEM1's form (AGENT=mem1, LOSS=sft), good and bad habits mixed.

The model of ``start/`` writes bare facts; asked for an ``<IS>`` it gives none, and GRPO has nothing to compare. One
document of three sections, of which the second states ``metal silver``::

    <IS>none</IS>   <IS>metal silver</IS>   <IS>city Rome</IS> (bad habit)   <IS>none</IS><answer>\\boxed{..}</answer>

A section that states what is asked is kept for sure; in every other one the state is lost with LOST, in favour of a
fact of that section. What GRPO then teaches is to keep it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from .task import NAMES, THINGS, PocketExample, document_train_row, fact, make_examples

LOST = 0.3
"""With this probability a section that does not state the answer takes the place of the state."""


def mem1_rows(seed: int, count: int, lines: int = 8) -> Iterator[Mapping[str, Any]]:
    """``count`` training rows with ``metadata.replies``; ``lines`` stand in a section."""
    for index, example in enumerate(make_examples(seed, count)):
        row = document_train_row(example)
        replies = replies_to(example, lines, random.Random(f"mem1:{seed}:{index}"))
        yield {**row, "metadata": {**row["metadata"], "replies": replies}}


def replies_to(example: PocketExample, lines: int, rng: random.Random) -> list[str]:
    wanted, state, replies = fact(example.name, example.answer), "none", []
    rows = example.context.splitlines()
    for start in range(0, len(rows), lines):
        section = [row.removesuffix(".") for row in rows[start : start + lines]]
        facts = [row for row in section if row.split()[0] in NAMES]
        if wanted in section:
            state = wanted
        elif facts and rng.random() < LOST:
            state = rng.choice(facts)
        replies.append(f"<IS>{state}</IS>")
    answer = state.split()[-1] if state == wanted else rng.choice(THINGS[example.name])
    return [*replies, f"<IS>{state}</IS><answer>\\boxed{{{answer}}}</answer>"]
