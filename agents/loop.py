"""The one loop: training, evaluation and serving all read documents through ``run_trajectory``.

Invariants:
- a completed trajectory ends with its FINAL turn; its turns are in the order in which they were sampled;
- the FINAL turn ends with the reading's prefix and has the reading's budget, where it has such;
- an aborted generation ends the trajectory at once: no further request is sent, its partial text is never a memory;
- there is one memory for every round of MEMORY turns that the agent advanced over, in order, however many turns the
  round sampled side by side;
- a ``TurnFailed`` ends the trajectory as FAILED with the turns sampled so far; other exceptions propagate;
- whoever watches is told of every round that the agent advanced over, right after it, and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from ..system.gather import gather_or_cancel
from .interface import MemoryAgent, Reading
from .records import (
    Failure,
    Generation,
    Outcome,
    Section,
    StopReason,
    Trajectory,
    Turn,
    TurnFailed,
    TurnKind,
    TurnRequest,
)
from .shown import is_told, sections_in

Sampler = Callable[[TurnRequest, int], Coroutine[Any, Any, Generation]]
"""Samples one request; the integer is the turn's number in the trajectory (0, 1, ...)."""
Watcher = Callable[[Sequence[Turn], Any], None]
"""Is told of a round: its turns, and the agent's state after them."""


def nobody(turns: Sequence[Turn], state: Any) -> None:
    """Watches nothing."""


async def run_trajectory(
    agent: MemoryAgent,
    reading: Reading,
    sample: Sampler,
    is_aborted: Callable[[], bool] = lambda: False,
    watch: Watcher = nobody,
) -> Trajectory:
    """Run ``agent`` over one reading. ``is_aborted`` is asked before every turn."""
    state = agent.start(reading)
    rounds: list[list[Turn]] = []
    memories: list[tuple[int, ...]] = []
    read = 0
    while requests := tuple(_of_reading(reading, request) for request in agent.requests(state)):
        if is_aborted():
            return _ended(agent, state, rounds, memories, Outcome.ABORTED)
        first = sum(map(len, rounds))
        recalled = tuple(agent.recalled(state))
        try:
            generations = await gather_or_cancel(*(sample(r, first + i) for i, r in enumerate(requests)))
        except TurnFailed as error:
            return _ended(agent, state, rounds, memories, Outcome.FAILED, Failure(error.kind, str(error)))
        sections = sections_in(requests, reading.document, read)
        read = max([read, *(section.number + 1 for section in sections if section)])
        turns = zip(requests, generations, sections, strict=True)
        rounds.append([_turn(*one, recalled, len(rounds)) for one in turns])
        if any(g.stop is StopReason.ABORT for g in generations):
            return _ended(agent, state, rounds, memories, Outcome.ABORTED)
        if agent.slow:
            state = await asyncio.to_thread(agent.advance, state, generations)
        else:
            state = agent.advance(state, generations)
        if any(r.kind is TurnKind.MEMORY for r in requests):
            memories.append(tuple(agent.memory(state)))
        watch(rounds[-1], state)
    cut = rounds[-1][-1].stop is StopReason.LENGTH
    return _ended(agent, state, rounds, memories, Outcome.TRUNCATED if cut else Outcome.COMPLETED)


def _of_reading(reading: Reading, request: TurnRequest) -> TurnRequest:
    if request.kind is not TurnKind.FINAL or not (reading.prefix_ids or reading.reply_tokens):
        return request
    prompt = [*request.prompt_ids, *reading.prefix_ids]
    shared = len(prompt) if request.shared == len(request.prompt_ids) else request.shared
    most = reading.reply_tokens or request.max_new_tokens
    return replace(request, prompt_ids=prompt, max_new_tokens=most, shared=shared)


def _turn(
    request: TurnRequest, generation: Generation, section: Section | None, recalled: tuple[int, ...], number: int
) -> Turn:
    return Turn(
        kind=request.kind,
        prompt_ids=request.prompt_ids,
        response_ids=generation.token_ids,
        log_probs=generation.log_probs,
        stop=generation.stop,
        weight_version=generation.weight_version,
        cached_tokens=generation.cached_tokens,
        round=number,
        section=section,
        recalled=recalled,
        told=is_told(request, section),
    )


def _ended(
    agent: MemoryAgent,
    state: Any,
    rounds: Sequence[Sequence[Turn]],
    memories: list[tuple[int, ...]],
    outcome: Outcome,
    failure: Failure | None = None,
) -> Trajectory:
    turns = tuple(chain.from_iterable(rounds))
    counts = agent.counts(state) | {
        "turns": len(turns),
        "rounds": len(rounds),
        "prompt_tokens": sum(len(t.prompt_ids) for t in turns),
        "response_tokens": sum(len(t.response_ids) for t in turns),
    }
    cached = [t.cached_tokens for t in turns if t.cached_tokens is not None]
    if len(cached) == len(turns):
        counts["cached_tokens"] = sum(cached)
    return Trajectory(turns, outcome, agent.answer(state), failure, counts, tuple(memories), state)
