"""The tasks over documents: look one fact up in a long list of short lines, or two of which the second is told first.

A document is a list of lines. Each line is a fact, a kind and one thing of that kind (``fruit apple.``), or filler
(``Rain fell.``), and costs exactly ``LINE_TOKENS`` tokens with the pocket tokenizer, newline included, so chunks never
cut a line.

**Look-up.** The question names a kind (``Which fruit?``), which has exactly one line in the document, in a chunk drawn
uniformly; the answer is the thing on it. A thing tells its kind, so finding it is a single attention hop, which half a
million weights learn in minutes; which thing stands there is drawn anew each time (a blind guess is right one time in
ten).

**Two hops.** The first chunks of four lines state two facts each about different kinds; the last one points at one of
the kinds. The question is always ``Which wanted?``, so what is needed first is told last. A memory that holds some of
the eight facts has the right one that share of the time, whatever its policy; whoever can ask for an earlier memory
needs no luck. With chunks of two lines and one fact::

    tool axe.       Rain fell.        a memory of one fact can keep this one ...
    Bells rang.     fruit apple.      ... or this one
    wanted tool.    Shops closed.     and learns here which it should have been

**Given replies of MEM1** (AGENT=mem1, LOSS=sft), for look-up documents whose second section states ``metal silver``::

    <IS>none</IS>   <IS>metal silver</IS>   <IS>city Rome</IS> (bad habit)   <IS>none</IS><answer>\\boxed{..}</answer>

A section that states what is asked is kept for sure; in every other one the state is lost with probability LOST, in
favour of a fact of that section. GRPO then teaches to keep it.

Everything is a pure function of ``(seed, index)``; different seeds give independent documents.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LINE_TOKENS = 4
"""Tokens of one line: two words, a full stop and the newline."""
CHUNK_TOKENS, TWO_HOP_CHUNK_TOKENS = 32, 16
FACTS = 4
"""Of a chunk of the look-up task."""
STATING, STATED = 4, 2
"""Chunks with facts in the two-hop task, and the facts of each."""
POINTER = "wanted"
LOST = 0.3

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
NAMES = tuple(THINGS)
FILLERS = ("Rain fell.", "Birds sang.", "Trains stopped.", "Snow melted.",
           "Shops closed.", "Winds blew.", "Bells rang.", "Boats came.")


@dataclass(frozen=True)
class PocketExample:
    question: str
    answer: str
    context: str
    name: str
    """The kind that is asked for, or pointed at."""


def fact(name: str, value: str) -> str:
    """The statement as it is kept in the memory; a document line is this plus a full stop and a newline."""
    return f"{name} {value}"


def question_for(name: str) -> str:
    return f"Which {name}?"


def draw_section(
    rng: random.Random, lines: int, facts: int, absent: str, present: tuple[str, str] | None = None
) -> list[str]:
    """The lines of one chunk: ``facts`` facts about different kinds other than ``absent``, the rest filler;
    ``present``, a kind and a thing, takes the place of one of the facts."""
    others = [name for name in NAMES if name != absent]
    rows = [fact(name, rng.choice(THINGS[name])) + "." for name in rng.sample(others, facts - (present is not None))]
    if present is not None:
        rows.append(fact(*present) + ".")
    return _filled(rng, rows, lines)


def _filled(rng: random.Random, rows: list[str], lines: int) -> list[str]:
    rows = rows + [rng.choice(FILLERS) for _ in range(lines - len(rows))]
    rng.shuffle(rows)
    return rows


def draw_look_up(rng: random.Random, chunks: int) -> PocketExample:
    name = rng.choice(NAMES)
    value = rng.choice(THINGS[name])
    where = rng.randrange(chunks)
    rows: list[str] = []
    for chunk in range(chunks):
        present = (name, value) if chunk == where else None
        rows += draw_section(rng, CHUNK_TOKENS // LINE_TOKENS, FACTS, name, present)
    return PocketExample(question_for(name), value, "\n".join(rows) + "\n", name)


def draw_two_hop(rng: random.Random) -> PocketExample:
    names = rng.sample(NAMES, STATING * STATED)
    things = {name: rng.choice(THINGS[name]) for name in names}
    wanted = rng.choice(names)
    lines = TWO_HOP_CHUNK_TOKENS // LINE_TOKENS
    stated = [fact(name, things[name]) + "." for name in names]
    rows: list[str] = []
    for start in range(0, len(stated), STATED):
        rows += _filled(rng, stated[start : start + STATED], lines)
    rows += _filled(rng, [fact(POINTER, wanted) + "."], lines)
    return PocketExample(question_for(POINTER), things[wanted], "\n".join(rows) + "\n", wanted)


def make_examples(seed: int, count: int, chunks: int = 3) -> Iterator[PocketExample]:
    for index in range(count):
        rng = random.Random(f"pocket:{seed}:{index}")
        rng.choice((chunks,))  # a draw that the seeds of published figures have
        yield draw_look_up(rng, chunks)


def two_hop_examples(seed: int, count: int) -> Iterator[PocketExample]:
    for index in range(count):
        yield draw_two_hop(random.Random(f"two-hop:{seed}:{index}"))


def train_row(example: PocketExample) -> dict[str, Any]:
    """A line of a training file."""
    about = {"ground_truth": [example.answer], "context": example.context}
    return {"prompt": example.question, "label": example.answer, "metadata": about}


def eval_entry(index: int, example: PocketExample) -> dict[str, Any]:
    """An entry of an evaluation file, in the RULER-HQA layout."""
    return {"context": example.context, "input": example.question, "answers": [example.answer],
            "num_docs": example.context.count("\n"), "index": index}


def mem1_rows(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Training rows with ``metadata.replies``."""
    for index, example in enumerate(make_examples(seed, count)):
        row = train_row(example)
        row["metadata"]["replies"] = mem1_replies(example, random.Random(f"mem1:{seed}:{index}"))
        yield row


def mem1_replies(example: PocketExample, rng: random.Random) -> list[str]:
    wanted, state, replies = fact(example.name, example.answer), "none", []
    rows = [row.removesuffix(".") for row in example.context.splitlines()]
    for start in range(0, len(rows), CHUNK_TOKENS // LINE_TOKENS):
        section = rows[start : start + CHUNK_TOKENS // LINE_TOKENS]
        facts = [row for row in section if row.split()[0] in NAMES]
        if wanted in section:
            state = wanted
        elif rng.random() < LOST:
            state = rng.choice(facts)
        replies.append(f"<IS>{state}</IS>")
    answer = example.answer if state == wanted else rng.choice(THINGS[example.name])
    return [*replies, f"<IS>{state}</IS><answer>\\boxed{{{answer}}}</answer>"]
