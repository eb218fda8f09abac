"""One engine: a queue, continuous batching and a prefix cache, step by step.

As vLLM 0.32 schedules (``v1/core/sched/scheduler.py``): in each step every running sequence gets its next token or
the next piece of its prompt, then waiting requests are admitted in the order of arrival while tokens of the step,
sequences and blocks are left; where blocks run out, the sequence that was admitted last goes back to the queue and is
computed again. Without chunked prefill a prompt that does not fit into what is left of the step waits.

A step takes ``step + prompt token * new prompt tokens + pair * (prompt token, token before it) + sequence * sequences
that decode + context token * tokens that they look at`` seconds. Steps in which nothing but decoding happens are taken
at once, until a sequence ends or a request arrives.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from .cache import BlockCache, Lease, Path


@dataclass(frozen=True)
class StepCosts:
    """Seconds."""

    step: float
    prompt_token: float
    sequence: float
    context_token: float = 0.0
    pair: float = 0.0


@dataclass(frozen=True)
class Limits:
    """Of one engine."""

    block: int = 32
    blocks: int | None = None
    """Room for keys and values; None is without bounds."""
    sequences: int = 256
    step_tokens: int = 8192
    chunked: bool = True
    found_when_computed: bool = False
    """A block can be found after the step that computes it (SGLang), not as soon as it is allocated (vLLM)."""


@dataclass(slots=True, eq=False)
class Request:
    """``path`` are the whole blocks of ``prompt`` tokens."""

    path: Path
    prompt: int
    reply: int
    name: Hashable = None
    on_prompt: Callable[[float], None] | None = None
    """Called when the prompt is computed."""
    on_end: Callable[[float], None] | None = None
    cached: int = 0
    """Prompt tokens found in the cache at first admission."""
    # What an engine knows of it:
    done: int = 0
    """Tokens of the reply; while it decodes, as of round 0 of the engine."""
    computed: int = 0
    target: int = 0
    lease: Lease | None = None
    tried: int = 0
    whole: int = 0
    """Blocks of ``path``."""

    def __post_init__(self) -> None:
        self.whole = sum(blocks for _, blocks in self.path)


@dataclass(slots=True)
class Counts:
    sent: int = 0
    cached: int = 0
    generated: int = 0
    steps: int = 0
    pairs: float = 0.0
    context: float = 0.0
    decoded: int = 0
    """Tokens that steps of decoding gave; the first of a reply comes with its prompt."""
    preemptions: int = 0
    repeated: int = 0
    """Tokens computed again after a preemption."""
    requests: int = 0
    busy: float = 0.0

    @property
    def computed(self) -> int:
        return self.sent - self.cached


class Engine:
    """``take_step`` when it is free and has work, ``cut`` when a request arrives meanwhile, then ``finish_step``.

    A round is one step of decoding. Sequences that decode are counted in rounds, so a round costs nothing here: one
    that has n tokens at round r and wants m ends at round r + m - n. The blocks of their replies are taken late
    (``_settle``), when they could matter or the sequence ends.
    """

    def __init__(self, costs: StepCosts, limits: Limits) -> None:
        self.costs, self.limits = costs, limits
        self.cache = BlockCache(limits.blocks)
        self.counts = Counts()
        self.waiting: deque[Request] = deque()
        self._prefilling: dict[Request, None] = {}
        self._decoding: dict[Request, None] = {}
        self._ends: list[tuple[int, int, Request]] = []
        self._admitted = 0
        self._context = 0
        """Tokens that the sequences that decode look at."""
        self._round = self._settled = 0
        self._prompts: list[tuple[Request, int]] = []
        self._steps = 0

    @property
    def load(self) -> int:
        return len(self.waiting) + len(self._prefilling) + len(self._decoding)

    def take_step(self) -> float:
        """Schedule a step, or many steps of decoding; returns their seconds."""
        self._prompts = []
        preempted = self._make_way()
        budget = self.limits.step_tokens - len(self._decoding)
        budget = self._continue_prompts(budget)
        while not self._prompts and not self._decoding and len(self._prefilling) > 1:
            self._preempt(next(reversed(self._prefilling)))
            budget, preempted = self._continue_prompts(budget), True
        if not preempted:
            self._admit(budget)
        assert self._prompts or self._decoding, "a request that can never run: too few blocks or tokens of a step"
        self._steps = 1
        if not self._prompts and not preempted:
            # Whoever waits now has no room, and there will be none before a sequence ends.
            self._steps = self._rounds_left()
        return self._seconds(self._steps)

    def cut(self, elapsed: float) -> float:
        """A request arrived: the seconds of the steps begun by then, which are all that will be done."""
        if self._steps > 1 and len(self.waiting) == 1:  # else it waits behind one that has no room
            self._steps = self._steps_within(elapsed)
        return self._seconds(self._steps)

    def finish_step(self, now: float) -> list[Request]:
        """The step has ended; returns the requests that ended with it."""
        steps, sequences, counts = self._steps, len(self._decoding), self.counts
        counts.busy += self._seconds(steps)
        counts.steps += steps
        counts.pairs += self._pairs()
        counts.context += steps * self._context + sequences * steps * (steps - 1) / 2
        counts.decoded += steps * sequences
        counts.generated += steps * sequences
        self._round += steps
        self._context += steps * sequences
        ended = []
        while self._ends and self._ends[0][0] <= self._round:
            request = heapq.heappop(self._ends)[2]
            if request in self._decoding and request.done + self._round >= request.reply:
                self._stop_decoding(request)
                ended.append(request)
        for request, new in self._prompts:
            request.computed += new
            if self.limits.found_when_computed:
                self._publish(request)
            if request.computed == request.target and self._first_token(request, now):
                ended.append(request)
        for request in ended:
            self._release(request)
        self._prompts = []
        return ended

    # --- prompts ----------------------------------------------------------------------------------------------------

    def _continue_prompts(self, budget: int) -> int:
        for request in self._prefilling:
            new = min(request.target - request.computed, budget)
            if new > 0 and self._room_for(request, request.computed + new):
                self._prompts.append((request, new))
                budget -= new
        return budget

    def _admit(self, budget: int) -> None:
        limits = self.limits
        while self.waiting and budget > 0 and len(self._prefilling) + len(self._decoding) < limits.sequences:
            request = self.waiting[0]
            target = request.prompt + request.done
            found = self.cache.found(request.path, (target - 1) // limits.block)
            new = target - found * limits.block
            if new > budget and not limits.chunked:
                return
            if not self._free_for(self.cache.needed(request.path, found, -(-target // limits.block))):
                return
            if self.cache.found(request.path, found) != found:
                continue  # making sure of room has taken some of it
            self.waiting.popleft()
            request.lease = self.cache.open(request.path, found)
            request.computed, request.target = found * limits.block, target
            self._count_admission(request)
            new = min(new, budget)
            self._prefilling[request] = None
            self._prompts.append((request, new))
            assert self._room_for(request, request.computed + new)
            budget -= new

    def _count_admission(self, request: Request) -> None:
        if request.tried:
            self.counts.repeated += request.target - request.computed
            return
        request.cached = request.computed
        self.counts.requests += 1
        self.counts.sent += request.prompt
        self.counts.cached += request.computed

    def _room_for(self, request: Request, tokens: int) -> bool:
        """Blocks for the first ``tokens``, found by others from now on; False where there is no room."""
        assert request.lease is not None
        blocks = -(-tokens // self.limits.block)
        if not self._free_for(blocks - request.lease.blocks):
            return False
        if not self.limits.found_when_computed:
            self.cache.extend(request.lease, min(tokens // self.limits.block, request.whole))
        self.cache.grow(request.lease, max(0, blocks - request.lease.blocks))
        return True

    def _publish(self, request: Request) -> None:
        assert request.lease is not None
        self.cache.publish(request.lease, min(request.computed // self.limits.block, request.whole))

    def _first_token(self, request: Request, now: float) -> bool:
        """Whether the reply ends with it."""
        del self._prefilling[request]
        if request.on_prompt and not request.tried:
            request.on_prompt(now)
        self.counts.generated += 1
        request.done += 1
        if request.done >= request.reply:
            return True
        self._context += request.prompt + request.done
        request.done -= self._round
        self._decoding[request] = None
        self._admitted += 1
        heapq.heappush(self._ends, (request.reply - request.done, self._admitted, request))
        return False

    # --- decoding and blocks ----------------------------------------------------------------------------------------

    def _stop_decoding(self, request: Request) -> None:
        assert request.lease is not None
        request.done += self._round
        del self._decoding[request]
        self._context -= request.prompt + request.done
        self._grow_reply(request, request.done)

    def _grow_reply(self, request: Request, done: int) -> None:
        """The newest token of a reply gets its keys and values in the next step."""
        lease = request.lease
        assert lease is not None
        self.cache.grow(lease, max(0, -(-(request.prompt + done - 1) // self.limits.block) - lease.blocks))

    def _settle(self) -> None:
        for request in self._decoding:
            self._grow_reply(request, request.done + self._round)
        self._settled = self._round

    def _unsettled(self, rounds: int = 0) -> int:
        """Blocks that replies may have taken without saying so, at most, ``rounds`` from now."""
        behind = self._round - self._settled + rounds
        return len(self._decoding) * (behind // self.limits.block + 1) if behind else 0

    def _free_for(self, blocks: int) -> bool:
        """Beside those that the sequences need for their next tokens."""
        if self.limits.blocks is None or blocks + self._unsettled(1) <= self.cache.free:
            return True
        self._settle()
        return blocks + self._growing() <= self.cache.free

    def _make_way(self) -> bool:
        """Whether sequences had to leave, the last admitted first, so that the others can have another token."""
        if self.limits.blocks is None or self._unsettled(1) <= self.cache.free:
            return False
        self._settle()
        preempted = False
        while self._decoding and self._growing() > self.cache.free:
            self._preempt(next(reversed(self._prefilling), None) or next(reversed(self._decoding)))
            preempted = True
        return preempted

    def _growing(self) -> int:
        """Blocks that the next token of every sequence takes."""
        block = self.limits.block
        return sum((request.prompt + request.done + self._round - 1) % block == 0 for request in self._decoding)

    def _preempt(self, request: Request) -> None:
        self.counts.preemptions += 1
        if request in self._decoding:
            self._stop_decoding(request)
        else:
            del self._prefilling[request]
        self._release(request)
        request.tried += 1
        self.waiting.appendleft(request)

    def _release(self, request: Request) -> None:
        """The whole blocks of the reply are remembered too: the same request finds them when it is computed again."""
        assert request.lease is not None
        written = (request.prompt + request.done - 1) // self.limits.block - request.whole if request.done else 0
        written = min(written, request.lease.nameless)
        if written > 0:
            name = (request.name, "reply", request.done)
            self.cache.close(request.lease, name, written)
            request.path, request.whole = (*request.path, (name, written)), request.whole + written
        else:
            self.cache.close(request.lease)
        request.lease = None

    def _rounds_left(self) -> int:
        """Until a sequence ends, or blocks may run out."""
        while self._ends[0][2] not in self._decoding:
            heapq.heappop(self._ends)
        rounds = self._ends[0][0] - self._round
        if self.limits.blocks is not None and self._unsettled(rounds) > self.cache.free:
            self._settle()
            rounds = min(rounds, max(1, (int(self.cache.free) // len(self._decoding) - 1) * self.limits.block))
        return max(1, rounds)

    # --- seconds ----------------------------------------------------------------------------------------------------

    def _pairs(self) -> float:
        return sum(new * (request.computed + new / 2) for request, new in self._prompts)

    def _seconds(self, steps: int) -> float:
        costs, sequences = self.costs, len(self._decoding)
        once = costs.step + costs.sequence * sequences + costs.context_token * self._context
        prompts = costs.prompt_token * sum(new for _, new in self._prompts) + costs.pair * self._pairs()
        return steps * once + costs.context_token * sequences * steps * (steps - 1) / 2 + prompts

    def _steps_within(self, elapsed: float) -> int:
        """Steps begun before ``elapsed`` seconds, at least one."""
        once, growth = self._seconds(1), self.costs.context_token * len(self._decoding) / 2
        linear = once - growth
        if growth > 0:
            steps = (-linear + math.sqrt(linear * linear + 4 * growth * elapsed)) / (2 * growth)
        else:
            steps = elapsed / linear if linear > 0 else self._steps
        return max(1, min(self._steps, math.ceil(steps - 1e-9)))
