"""Made-up trajectories in the form that a run keeps: seeded, of any size, with facts that enter memories and are lost.

Words are drawn like those of a text, the frequent ones often (by Zipf's law), so that they compress about as text
does. A document hides its answer in one section; a sibling notes it or not, and may forget it before it answers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from mem_agent.hooks.traces import FOLDER, Trace, TraceDocument, TraceTurn, line_of

_VOWELS, _CONSONANTS = "aeiou", "bcdfghjklmnprstvwz"
_WORDS = 8_000
_WEIGHTS = list(accumulate(1 / (rank + 3) for rank in range(_WORDS)))


@dataclass(frozen=True, slots=True)
class Shape:
    groups: int = 3
    siblings: int = 4
    sections: int = 5
    section_words: int = 60
    memory_words: int = 20
    tokens: bool = True


def write_run(folder: Path, shape: Shape = Shape(), rollouts: int = 2, seed: int = 0) -> Path:
    """A training run's folder."""
    for rollout in range(rollouts):
        write_traces(folder, f"rollout_{rollout:06d}", trajectories(shape, seed + rollout, rollout=rollout))
    return folder


def write_results(
    folder: Path, shape: Shape = Shape(), lengths: tuple[str, ...] = ("50", "200"), seed: int = 0
) -> Path:
    """An evaluation's folder."""
    for number, length in enumerate(lengths):
        write_traces(folder, length, trajectories(shape, seed + number, length=length))
    return folder


def write_traces(folder: Path, stem: str, records: Iterator[TraceDocument | Trace]) -> None:
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    with (folder / FOLDER / f"{stem}.jsonl").open("wb") as file:
        file.writelines(map(line_of, records))


def trajectories(
    shape: Shape, seed: int, rollout: int | None = None, length: str | None = None
) -> Iterator[TraceDocument | Trace]:
    draw = random.Random(seed)
    words = [_word(random.Random(rank)) for rank in range(_WORDS)]
    for group in range(shape.groups):
        name, thing = _word(draw).title(), f"{_word(draw)} {_word(draw)}"
        place = draw.randrange(shape.sections)
        sections = [_text(draw, words, shape.section_words) for _ in range(shape.sections)]
        sections[place] += f" {name} keeps the {thing.title()}, as all of them knew."
        document = TraceDocument(id=f"{seed:04d}{group:04d}", sections=tuple(sections))
        yield document
        for sample in range(shape.siblings):
            yield _trajectory(draw, words, shape, document, (name, thing, place), group, sample, rollout, length)


def _trajectory(
    draw: random.Random, words: list[str], shape: Shape, document: TraceDocument, asked: tuple[str, str, int],
    group: int, sample: int, rollout: int | None, length: str | None,
) -> Trace:
    name, thing, place = asked
    notes, forgets = draw.random() < 0.75, draw.random() < 0.3
    memory, turns = "", []
    for at in range(shape.sections):
        shown = memory
        kept = shown.split()[: shape.memory_words * 2 // 3]
        if forgets and at == place + 2:
            kept = [word for word in kept if word.strip(".").lower() not in thing.split()]
        found = [f"{name} keeps the {thing}."] if notes and at == place else []
        memory = " ".join([*found, *kept, _text(draw, words, shape.memory_words - len(kept))])
        turns.append(_turn(draw, "memory", (at,), shown, memory, memory, shape, gold=thing in memory))
    right = thing in memory
    answer = thing if right else _word(draw)
    turns.append(_turn(draw, "final", (), memory, f"It is \\boxed{{{answer}}}", memory, shape, gold=right))
    where = str(rollout if rollout is not None else length)
    return Trace(
        id=f"{where}-{group}-{sample}", rollout=rollout, length=length, question_id=str(40 + group), group=str(group),
        sample=sample, question=f"What does {name} keep?", golds=(thing.title(), f"the {thing}s"),
        document=document.id, task="qa", agent="memagent", weight_version=str(rollout or 0),
        response=turns[-1].reply, prediction=answer, reward=float(right) if rollout is not None else None,
        reward_parts={"answer": float(right), "length": -0.05} if rollout is not None else {}, accuracy=float(right),
        scores={"em": float(right), "sub_em": float(right)} if length else {},
        advantage=(0.5 if right else -0.5) if rollout is not None else None, counts={"turns": len(turns)},
        turns=tuple(turns),
    )


def _turn(
    draw: random.Random, kind: str, sections: tuple[int, ...], shown: str, reply: str, memory: str, shape: Shape,
    gold: bool,
) -> TraceTurn:
    pieces = tuple(_pieces(reply)) if shape.tokens else ()
    log_probs = tuple(-min(9.0, draw.expovariate(4) ** 2) for _ in pieces)
    return TraceTurn(
        kind=kind, sections=sections, shown_memory=shown, reply=reply, memory=memory, gold=gold,
        prompt_tokens=shape.section_words + len(shown.split()), cached_tokens=shape.section_words, pieces=pieces,
        log_probs=log_probs, advantage=draw.choice((0.5, -0.5)),
    )


def _pieces(text: str) -> Iterator[str]:
    """Tokens of at most five characters, each blank with the word after it."""
    at = 0
    while at < len(text):
        end = text.find(" ", at + 1)
        end = min(at + 5, len(text) if end < 0 else end)
        yield text[at:end]
        at = end


def _text(draw: random.Random, words: list[str], count: int) -> str:
    return " ".join(draw.choices(words, cum_weights=_WEIGHTS, k=max(0, count)))


def _word(draw: random.Random) -> str:
    return "".join(draw.choice(_CONSONANTS) + draw.choice(_VOWELS) for _ in range(draw.randint(2, 4)))
