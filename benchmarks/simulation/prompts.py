"""What is asked in a rollout: trajectories, and of each turn the path of its prompt and the length of its reply.

Prompts come from a trace, or are made for documents of a length::

    section first   instructions | question and chunk of the document | memory of the trajectory
    memory first    instructions | question of the document | memory of the trajectory, chunk

In the first turn the memory is empty, so siblings share all of their prompt.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby

from .cache import Path
from .traces import Trace

EMPTY = 4
"""Tokens of the words for an empty memory."""


@dataclass(frozen=True, slots=True)
class TurnPlan:
    path: Path
    prompt: int
    reply: int
    shared: int = 0
    """First tokens that the siblings' prompts have in common, whatever their memories are."""
    engine: int = -1
    """Where a real run asked it."""
    cached: int = -1
    """What it found there."""
    wait: float = 0.0
    """Seconds after the answer before, or after the beginning."""


@dataclass(frozen=True, slots=True)
class TrajectoryPlan:
    number: int
    group: int
    turns: Sequence[TurnPlan]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Documents read in chunks. Lengths in tokens; replies are drawn from ``replies``, shares of the most allowed."""

    layout: str = "section_first"
    chunk: int = 5000
    memory: int = 1000
    final: int = 1000
    replies: Sequence[float] = (1.0,)
    instructions: int = 80
    """Before the question."""
    ending: int = 20
    """After the last slot."""
    question: int = 32
    block: int = 32


def read_documents(reading: Reading, chunk_counts: Sequence[int], group: int, seed: int = 0) -> list[TrajectoryPlan]:
    """``group`` trajectories for each document of ``chunk_counts[i]`` chunks."""
    draw = random.Random(seed)
    return [
        TrajectoryPlan(document * group + sibling, document, _turns(reading, document, sibling, chunks, draw))
        for document, chunks in enumerate(chunk_counts)
        for sibling in range(group)
    ]


def _turns(reading: Reading, document: int, sibling: int, chunks: int, draw: random.Random) -> list[TurnPlan]:
    own = (document, sibling)
    turns, memory = [], EMPTY
    head = reading.instructions + reading.question
    for number in range(chunks):
        tokens = head + reading.chunk + memory + reading.ending
        parts: list[tuple[Hashable, int]] = [("memory", reading.instructions), (("question", document), head)]
        if reading.layout == "section_first":
            parts.append(((document, number), head + reading.chunk))
        shared = parts[-1][1]
        if number == 0:
            shared = tokens
            parts.append(((document, "first"), tokens))
        reply = max(1, round(draw.choice(reading.replies) * reading.memory))
        turns.append(TurnPlan(_path(reading, tokens, [*parts, ((*own, number), tokens)]), tokens, reply, shared))
        memory = reply
    tokens = head + memory + reading.ending
    # The final turn has instructions of its own.
    parts = [("final", reading.instructions), (("final question", document), head), ((*own, "final"), tokens)]
    reply = max(1, round(draw.choice(reading.replies) * reading.final))
    turns.append(TurnPlan(_path(reading, tokens, parts), tokens, reply, head))
    return turns


def _path(reading: Reading, tokens: int, parts: Sequence[tuple[Hashable, int]]) -> Path:
    """Whole blocks of each part, given where it ends: a block belongs to the part in which it ends."""
    path, start = [], 0
    for name, end in parts:
        blocks = end // reading.block - start
        if blocks > 0:
            path.append((name, blocks))
            start += blocks
    assert start == tokens // reading.block, (start, tokens)
    return tuple(path)


# --- traces -------------------------------------------------------------------------------------------------------


def trace_paths(trace: Trace, block: int) -> list[Path]:
    """The path of each turn's prompt, in the order of the turns."""
    order = sorted(range(len(trace.turns)), key=lambda i: trace.turns[i].rank)
    chains: dict[int, list[int]] = {}
    users: list[int] = []
    chain: list[int] = []
    for index in order:
        turn = trace.turns[index]
        chain = chain[: turn.shared // block]
        new = turn.prompt // block - len(chain)
        chain += range(len(users), len(users) + new)
        users += [0] * new
        for name in chain:
            users[name] += 1
        chains[index] = list(chain)

    # Blocks one behind the other that the same prompts use are one extent: along a path their number only falls.
    def extents(blocks: Sequence[int]) -> Path:
        runs = (list(run) for _, run in groupby(blocks, key=lambda name: users[name]))
        return tuple((run[0], len(run)) for run in runs)

    return [extents(chains[i]) for i in range(len(trace.turns))]


def trace_trajectories(trace: Trace, block: int) -> list[TrajectoryPlan]:
    """The trajectories of a real run, with its replies, engines and the client's time between turns."""
    paths = trace_paths(trace, block)
    rows: dict[int, list[int]] = {}
    for index, turn in enumerate(trace.turns):
        rows.setdefault(turn.trajectory, []).append(index)
    plans = []
    for number, indices in sorted(rows.items()):
        turns, ended = [], 0
        for index in indices:
            turn = trace.turns[index]
            wait = max(0, turn.start_ms - ended) / 1000
            turns.append(TurnPlan(paths[index], turn.prompt, turn.reply, 0, turn.engine, turn.cached, wait))
            ended = turn.end_ms
        plans.append(TrajectoryPlan(number, trace.turns[indices[0]].group, turns))
    return plans


# --- what whole blocks allow --------------------------------------------------------------------------------------


def least_computed(trajectories: Sequence[TrajectoryPlan], block: int) -> int:
    """Prompt tokens that one engine computes that forgets nothing: the bound for any number of engines.

    Whole blocks once each, and what of each prompt lies behind its last whole block; of a prompt without a rest the
    last block, again, as its last token is always computed.
    """
    seen: set[object] = set()
    tokens = 0
    for turn in (turn for trajectory in trajectories for turn in trajectory.turns):
        new = sum(blocks for name, blocks in turn.path if name not in seen)
        rest = turn.prompt % block
        tokens += new * block + (rest or (0 if new else block))
        seen.update(name for name, _ in turn.path)
    return tokens
