"""The tasks over documents: look one fact up in a long list of short lines, or two of which the second is told first.

A document is a list of lines. Each line is a fact, a kind and one thing of that kind (``fruit apple.``), or filler
(``Rain fell.``), and costs exactly four tokens with the pocket tokenizer: two words, a full stop and the newline. So
chunks never cut a line.

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

Everything is a pure function of ``(seed, index)``; different seeds give independent documents.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LINES, TWO_HOP_LINES, FACTS = 8, 4, 4
"""Of a chunk of each task, and facts of one of the look-up task."""
STATING, STATED = 4, 2
"""Chunks with facts in the two-hop task, and the facts of each."""
POINTER = "wanted"

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
    sections: tuple[str, ...]
    name: str
    """The kind that is asked for, or pointed at."""

    @property
    def context(self) -> str:
        return "".join(self.sections)


def fact(name: str, value: str) -> str:
    """The statement as it is kept in the memory; a document line is this plus a full stop and a newline."""
    return f"{name} {value}"


def question_for(name: str) -> str:
    return f"Which {name}?"


def draw_section(
    rng: random.Random, lines: int, facts: int, absent: str, present: tuple[str, str] | None = None
) -> str:
    """The lines of one chunk: ``facts`` facts about different kinds other than ``absent``, the rest filler;
    ``present``, a kind and a thing, takes the place of one of the facts."""
    others = [name for name in NAMES if name != absent]
    stated = [fact(name, rng.choice(THINGS[name])) for name in rng.sample(others, facts - (present is not None))]
    return _section(rng, stated + ([fact(*present)] if present else []), lines)


def _section(rng: random.Random, facts: list[str], lines: int) -> str:
    rows = [f"{each}." for each in facts] + [rng.choice(FILLERS) for _ in range(lines - len(facts))]
    rng.shuffle(rows)
    return "".join(f"{row}\n" for row in rows)


def draw_look_up(rng: random.Random, chunks: int) -> PocketExample:
    name = rng.choice(NAMES)
    value = rng.choice(THINGS[name])
    where = rng.randrange(chunks)
    sections = [draw_section(rng, LINES, FACTS, name, (name, value) if chunk == where else None)
                for chunk in range(chunks)]
    return PocketExample(question_for(name), value, tuple(sections), name)


def draw_two_hop(rng: random.Random) -> PocketExample:
    names = rng.sample(NAMES, STATING * STATED)
    things = {name: rng.choice(THINGS[name]) for name in names}
    wanted = rng.choice(names)
    stated = [fact(*each) for each in things.items()]
    told = [*(stated[start : start + STATED] for start in range(0, len(stated), STATED)), [fact(POINTER, wanted)]]
    sections = [_section(rng, facts, TWO_HOP_LINES) for facts in told]
    return PocketExample(question_for(POINTER), things[wanted], tuple(sections), wanted)


def make_examples(seed: int, count: int, chunks: int = 3) -> Iterator[PocketExample]:
    for index in range(count):
        rng = random.Random(f"pocket:{seed}:{index}")
        rng.choice((chunks,))  # a draw that the seeds of published figures have
        yield draw_look_up(rng, chunks)


def two_hop_examples(seed: int, count: int) -> Iterator[PocketExample]:
    for index in range(count):
        yield draw_two_hop(random.Random(f"two-hop:{seed}:{index}"))


def train_row(_: int, example: PocketExample) -> dict[str, Any]:
    """A line of a training file."""
    about = {"ground_truth": [example.answer], "context": example.context}
    return {"prompt": example.question, "label": example.answer, "metadata": about}


def eval_entry(index: int, example: PocketExample) -> dict[str, Any]:
    """An entry of an evaluation file, in the RULER-HQA layout."""
    return {"context": example.context, "input": example.question, "answers": [example.answer],
            "num_docs": example.context.count("\n"), "index": index}
