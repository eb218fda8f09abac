"""Supervised rows for the two warm-up stages of the pocket model: first the ability, then a mix of habits.

The *ability* rows teach everything a perfect agent does: find the line of the asked kind in a section or in the
memory, reply ``none`` when neither has it, and answer in a box from the memory.  A share of them are *recitals*: all
facts of a section in random order, which puts a dozen look-ups into one row and makes looking up form quickly.

The *mixed* rows are turns of whole trajectories with a habit drawn for each turn: the good one, or keeping a
distractor's fact, or keeping nothing.  A model trained on them for a short while can still do everything, but does
the right thing only some of the time, and siblings of one question differ.  That is what the reward then selects.

The rows are those of all agents that the start is for: ``memagent``; ``gated``, whose replies are the same memories
with a decision in front (``gated_reply``); and the merge turn of ``parallel``, whose other turns are ``memagent``'s.

A row is ``(prompt_ids, response_ids)``; the response ends with ``<|im_end|>``, and only it carries loss.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..agents.gated import FINISH, SKIP, UPDATE
from ..agents.parallel import BETWEEN
from ..agents.prompts import MEMORY, NOTES, PROBLEM, SECTION, chat_frame, compile_template, load_prompts
from ..agents.vocabulary import Vocabulary
from .task import LINE_TOKENS, NAMES, THINGS, draw_section, fact, make_example, question_for

NONE = "none"
"""What a turn replies when there is nothing to keep; the same text as the ``empty_memory`` marker."""

RECITE = "Which each?"
"""The question of the recital drill."""

Row = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Shape:
    """The shape of the documents: tokens of a chunk, facts in it, and the numbers of chunks to draw from."""

    chunk_tokens: int = 32
    facts: int = 4
    chunks: tuple[int, ...] = (3,)


@dataclass(frozen=True)
class AbilityMix:
    """Shares of the ability rows; what is left over are ordinary memory turns with one question."""

    recite: float = 0.15
    final: float = 0.45
    merge: float = 0.06
    gated: float = 0.5
    """Of the memory turns: those with a decision."""
    rounds: int = 2


@dataclass(frozen=True)
class Habits:
    """How one turn of the mixed stage picks its reply; what is left over keeps nothing.

    With the fact in the last, middle or first of three chunks a trajectory succeeds with ``good``, its square or its
    cube, so 0.52 gives 0.31 on paper, and somewhat less (0.24) from a trained model.
    """

    good: float = 0.52
    distractor: float = 0.28


@dataclass(frozen=True)
class Gate:
    """How often a gated turn ends the reading, by whether the memory then holds the asked fact."""

    finish: float = 0.5
    hasty: float = 0.0


class RowMaker:
    """Builds rows exactly as the agent builds its prompts: the same templates, vocabulary and splicing."""

    def __init__(self, tokenizer: Any, prompts_file: Path | str, shape: Shape) -> None:
        self.shape = shape
        self.end = tokenizer.eos_token_id
        self._vocabulary = Vocabulary(tokenizer)
        texts = load_prompts("section_first", str(prompts_file))
        frame = chat_frame(tokenizer, False, {})
        self._memory_turn = compile_template(texts["memory"], frame, self._vocabulary)
        self._gated_turn = compile_template(texts["gated"], frame, self._vocabulary)
        self._merge_turn = compile_template(texts["merge"], frame, self._vocabulary)
        self._final_turn = compile_template(texts["final"], frame, self._vocabulary)
        self._empty = self._vocabulary.encode_text(texts["empty_memory"])
        self._cache: dict[str, list[int]] = {}

    def ids(self, text: str) -> list[int]:
        """The ids of a short text, remembered."""
        found = self._cache.get(text)
        if found is None:
            found = self._cache[text] = self._vocabulary.encode_text(text)
        return found

    def section(self, lines: Sequence[str]) -> list[int]:
        """The ids of a chunk; a line tokenises alike alone and inside a document."""
        return [token for line in lines for token in self.ids(line + "\n")]

    def memory_row(self, question: str, lines: Sequence[str], memory: str, reply: str, gated: bool = False) -> Row:
        """One memory turn."""
        held = self.ids(memory) if memory else self._empty
        turn = self._gated_turn if gated else self._memory_turn
        prompt = turn.fill({PROBLEM: self.ids(question), SECTION: self.section(lines), MEMORY: held})
        return prompt, [*self._vocabulary.encode_text(reply), self.end]

    def merge_row(self, question: str, memory: str, notes: Sequence[str], reply: str) -> Row:
        """The turn that merges what was read side by side."""
        between = self._vocabulary.encode_markup(BETWEEN)
        joined = [i for note in notes for i in (*between, *self.ids(note))][len(between) :]
        prompt = self._merge_turn.fill({PROBLEM: self.ids(question), MEMORY: self.ids(memory), NOTES: joined})
        return prompt, [*self._vocabulary.encode_text(reply), self.end]

    def final_row(self, question: str, memory: str, answer: str) -> Row:
        """The answering turn."""
        held = self.ids(memory) if memory else self._empty
        prompt = self._final_turn.fill({PROBLEM: self.ids(question), MEMORY: held})
        return prompt, [*self._vocabulary.encode_text(f"\\boxed{{{answer}}}"), self.end]


def _name(text: str) -> str:
    """The kind a fact is about (the text itself where it is no fact)."""
    return text.partition(" ")[0]


def _thing(text: str) -> str:
    """The thing a fact names (the text itself where it is no fact)."""
    return text.rpartition(" ")[2]


def _facts(rows: Sequence[str]) -> dict[str, str]:
    """The facts of a chunk by their kind."""
    return {_name(row): row.rstrip(".") for row in rows if _name(row) in NAMES}


def _some_fact(rng: random.Random, avoid: str) -> str:
    """A fact about a kind other than ``avoid``."""
    name = rng.choice([name for name in NAMES if name != avoid])
    return fact(name, rng.choice(THINGS[name]))


def ability_rows(maker: RowMaker, seed: int, mix: AbilityMix) -> Iterator[Row]:
    """An endless stream of good behaviour."""
    rng = random.Random(f"pocket-ability:{seed}")
    while True:
        kind = rng.random()
        if kind < mix.recite:
            yield _recite(maker, rng, mix.rounds)
        elif kind < mix.recite + mix.final:
            yield _final(maker, rng)
        elif kind < mix.recite + mix.final + mix.merge:
            yield _merge(maker, rng)
        else:
            yield _turn(maker, rng, gated=rng.random() < mix.gated)


def _recite(maker: RowMaker, rng: random.Random, rounds: int) -> Row:
    """A drill: all facts of a section in random order, several times over.

    The kinds come in no order one could learn, but the thing after each of them is a look-up.
    """
    facts = rng.randint(maker.shape.facts, len(NAMES) - 1)
    rows = draw_section(rng, facts + 2, facts, rng.choice(NAMES))
    stated = list(_facts(rows).values())
    reply = [line for _ in range(rounds) for line in rng.sample(stated, facts)]
    return maker.memory_row(RECITE, rows, NONE, "\n".join(reply))


def _turn(maker: RowMaker, rng: random.Random, gated: bool) -> Row:
    """An ordinary memory turn with its good reply."""
    name = rng.choice(NAMES)
    wanted = fact(name, rng.choice(THINGS[name]))
    lines = maker.shape.chunk_tokens // LINE_TOKENS
    case = rng.random()
    here = case < 0.45  # the section has it; below 0.8 the memory has it; else neither
    present = (name, _thing(wanted)) if here else None
    rows = draw_section(rng, lines, maker.shape.facts, name, present)
    memory = _some_fact(rng, name) if rng.random() < 0.5 else NONE
    if not here and case < 0.8:
        memory = reply = wanted
    elif gated and not here:
        reply = memory
    else:
        reply = wanted if here else NONE
    if gated:
        reply = gated_reply(rng, Gate(), name, memory, reply)
    return maker.memory_row(question_for(name), rows, memory, reply, gated)


def gated_reply(rng: random.Random, gate: Gate, name: str, memory: str, new: str) -> str:
    """A reply that puts ``new`` in the place of ``memory``, with the decision in front."""
    ends = rng.random() < (gate.finish if _name(new) == name else gate.hasty)
    if new == memory:
        return FINISH if ends else SKIP
    return f"{FINISH if ends else UPDATE}\n{new}"


def _merge(maker: RowMaker, rng: random.Random) -> Row:
    """Notes of a round with the asked fact in one of them, or in the memory, or nowhere."""
    name = rng.choice(NAMES)
    wanted = fact(name, rng.choice(THINGS[name]))
    notes = [_some_fact(rng, name) for _ in range(rng.randint(2, 4))]
    memory = _some_fact(rng, name) if rng.random() < 0.3 else NONE
    case = rng.random()
    if case < 0.7:
        notes[rng.randrange(len(notes))] = wanted
    elif case < 0.85:
        memory = wanted
    return maker.merge_row(question_for(name), memory, notes, wanted if case < 0.85 else NONE)


def _final(maker: RowMaker, rng: random.Random) -> Row:
    """An answering turn; a memory about another kind, or an empty one, is answered ``none``."""
    name, case = rng.choice(NAMES), rng.random()
    value = rng.choice(THINGS[name])
    if case < 0.8:
        return maker.final_row(question_for(name), fact(name, value), value)
    return maker.final_row(question_for(name), _some_fact(rng, name) if case < 0.9 else NONE, NONE)


def mixed_rows(maker: RowMaker, seed: int, habits: Habits, gate: Gate) -> Iterator[Row]:
    """An endless stream of turns of trajectories, the habit of each turn drawn independently of the others.

    Every second trajectory is gated; one that is finished has no more turns but the last.
    """
    rng = random.Random(f"pocket-mixed:{seed}")
    shape = maker.shape
    per_chunk = shape.chunk_tokens // LINE_TOKENS
    for number in itertools.count():
        gated = number % 2 == 1
        example = make_example(rng, rng.choice(shape.chunks), shape.chunk_tokens, shape.facts)
        lines = example.context.splitlines()
        memory = NONE
        for start in range(0, len(lines), per_chunk):
            rows = lines[start : start + per_chunk]
            new = _habit(rng, habits, example.name, rows, memory)
            reply = gated_reply(rng, gate, example.name, memory, new) if gated else new
            yield maker.memory_row(example.question, rows, memory, reply, gated)
            memory = new
            if gated and reply.startswith(FINISH):
                break
        answer = _thing(memory) if _name(memory) == example.name else NONE
        yield maker.final_row(example.question, memory, answer)


def _habit(rng: random.Random, habits: Habits, name: str, rows: Sequence[str], memory: str) -> str:
    """One turn's reply: the asked fact if section or memory has it, or a distractor of the section, or nothing."""
    known = _facts(rows)
    draw = rng.random()
    if draw < habits.good:
        return known.get(name, memory if _name(memory) == name else NONE)
    if draw < habits.good + habits.distractor:
        return known[rng.choice(sorted(set(known) - {name}))]
    return NONE
