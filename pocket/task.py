"""The pocket task: find one fact in a long list of short lines.

A document is a list of lines.  Each line is either a fact, a kind and one thing of that kind (``fruit apple.``), or
filler (``Rain fell.``), and each line costs exactly ``LINE_TOKENS`` tokens with the pocket tokenizer, newline
included, so cutting the document every ``chunk_tokens`` ids never cuts a line.  The question names one kind
(``Which fruit?``); that kind has exactly one line in the whole document, in a chunk drawn uniformly, and the answer is
the thing on it.  All other facts are about other kinds.

A thing tells its kind, so finding it is a single attention hop and a model of half a million weights learns it in
minutes; which thing of the kind stands in the document is drawn anew each time, so nothing but the document tells the
answer (a blind guess is right one time in ten).

Everything is a pure function of ``(seed, index)``: two runs with one seed write the same bytes, and different seeds
give independent documents.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LINE_TOKENS = 4
"""Tokens of one line: two words, a full stop and the newline."""

THINGS: dict[str, tuple[str, ...]] = {
    "fruit": ("apple", "pear", "plum", "grape", "lemon", "mango", "peach", "melon", "cherry", "fig"),
    "animal": ("cat", "dog", "horse", "sheep", "goat", "mouse", "tiger", "lion", "bear", "wolf"),
    "colour": ("red", "blue", "green", "pink", "brown", "black", "white", "gray", "purple", "yellow"),
    "metal": ("gold", "iron", "tin", "zinc", "lead", "copper", "silver", "nickel", "steel", "bronze"),
    "tool": ("hammer", "saw", "drill", "axe", "file", "spade", "rake", "pliers", "wrench", "chisel"),
    "city": ("Rome", "Paris", "London", "Oslo", "Cairo", "Lima", "Delhi", "Tokyo", "Berlin", "Quito"),
    "drink": ("tea", "coffee", "milk", "juice", "water", "wine", "beer", "cocoa", "cider", "soda"),
    "sport": ("tennis", "golf", "chess", "rugby", "hockey", "boxing", "rowing", "judo", "polo", "darts"),
}
"""The kinds of things; no word stands under two kinds."""

NAMES: tuple[str, ...] = tuple(THINGS)

FILLERS: tuple[str, ...] = (
    "Rain fell.", "Birds sang.", "Trains stopped.", "Snow melted.",
    "Shops closed.", "Winds blew.", "Bells rang.", "Boats came.",
)  # fmt: skip


@dataclass(frozen=True)
class PocketExample:
    """One document with its question: ``fact_chunk`` is the index of the chunk that holds the answer."""

    question: str
    answer: str
    context: str
    fact_chunk: int
    name: str


def fact(name: str, value: str) -> str:
    """The statement as it is kept in the memory; a document line is this plus a full stop and a newline."""
    return f"{name} {value}"


def question_for(name: str) -> str:
    """The question whose answer is the value of ``name``."""
    return f"Which {name}?"


def draw_section(
    rng: random.Random, lines: int, facts: int, absent: str, present: tuple[str, str] | None = None
) -> list[str]:
    """The lines of one chunk: ``facts`` facts about different kinds other than ``absent``, the rest filler.

    ``present`` is a ``(name, value)`` that takes the place of one of the facts (its name is then usually ``absent``,
    which keeps it single in the chunk).
    """
    others = [name for name in NAMES if name != absent]
    rows = [fact(name, rng.choice(THINGS[name])) + "." for name in rng.sample(others, facts - (present is not None))]
    if present is not None:
        rows.append(fact(*present) + ".")
    rows.extend(rng.choice(FILLERS) for _ in range(lines - facts))
    rng.shuffle(rows)
    return rows


def make_example(
    rng: random.Random, chunks: int, chunk_tokens: int, facts: int, fact_chunk: int | None = None
) -> PocketExample:
    """One example of ``chunks`` chunks of ``chunk_tokens`` tokens, each with ``facts`` facts among filler."""
    if chunk_tokens % LINE_TOKENS:
        raise ValueError(f"chunk_tokens {chunk_tokens} is not a multiple of {LINE_TOKENS}: lines would be cut")
    lines = chunk_tokens // LINE_TOKENS
    if not 1 <= facts <= min(lines, len(NAMES) - 1):
        raise ValueError(f"facts {facts} does not fit {lines} lines and {len(NAMES)} names")
    name = rng.choice(NAMES)
    value = rng.choice(THINGS[name])
    where = rng.randrange(chunks) if fact_chunk is None else fact_chunk
    rows: list[str] = []
    for index in range(chunks):
        rows.extend(draw_section(rng, lines, facts, name, (name, value) if index == where else None))
    return PocketExample(question_for(name), value, "\n".join(rows) + "\n", where, name)


def make_examples(
    seed: int, count: int, chunks: int | Sequence[int] = 3, chunk_tokens: int = 32, facts: int = 4
) -> Iterator[PocketExample]:
    """``count`` examples; with several ``chunks`` each example draws its number of chunks from them."""
    choices = (chunks,) if isinstance(chunks, int) else tuple(chunks)
    for index in range(count):
        rng = random.Random(f"pocket:{seed}:{index}")
        yield make_example(rng, rng.choice(choices), chunk_tokens, facts)


def document_train_row(example: PocketExample) -> Mapping[str, Any]:
    """A line of a training file."""
    about = {"ground_truth": [example.answer], "context": example.context}
    return {"prompt": example.question, "label": example.answer, "metadata": about}


def document_eval_entry(index: int, example: PocketExample) -> Mapping[str, Any]:
    """An entry of an evaluation file, in the RULER-HQA layout."""
    return {
        "context": example.context,
        "input": example.question,
        "answers": [example.answer],
        "num_docs": example.context.count("\n"),
        "index": index,
    }
