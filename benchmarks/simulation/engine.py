"""One engine: a queue, continuous batching and a prefix cache, step by step.

As vLLM 0.32 schedules (``v1/core/sched/scheduler.py``): in each step every running sequence gets its next token or the
next piece of its prompt, then waiting requests are admitted in the order of arrival while tokens of the step, sequences
and blocks are left; where blocks run out, the sequence that was admitted last goes back to the queue and is computed
again. Without chunked prefill a prompt that does not fit into what is left of the step waits.

A step takes ``step + prompt token * new prompt tokens + pair * (prompt token, token before it) + sequence * sequences
that decode + context token * tokens that they look at`` seconds. Steps in which nothing but decoding happens are taken
at once, until a sequence ends or a request arrives.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

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
    computed: int = 0
    target: int = 1
    lease: Lease | None = None
    tried: int = 0
    whole: int = 0
    """Blocks of ``path``."""

    def __post_init__(self) -> None:
        self.whole = sum(blocks for _, blocks in self.path)

    @property
    def prefilled(self) -> bool:
        return self.computed >= self.target


@dataclass(slots=True)
class Counts:
    sent: int = 0
    cached: int = 0
    generated: int = 0
    steps: int = 0
    prompt_steps: int = 0
    pairs: float = 0.0
    context: float = 0.0
    decoded: int = 0
    """Tokens that steps of decoding gave; the first of a reply comes with its prompt."""
    preemptions: int = 0
    repeated: int = 0
    """Tokens computed again after a preemption."""
    busy: float = 0.0

    @property
    def computed(self) -> int:
        return self.sent - self.cached


@dataclass(eq=False)
class Engine:
    """``take_step`` is called whenever the engine is free and has work; ``cut`` when a request arrives meanwhile."""

    costs: StepCosts
    limits: Limits
    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self.cache = BlockCache(self.limits.blocks)
        self._prompts: list[tuple[Request, int]] = []
        self._decoding: list[Request] = []
        self._steps = 0

    @property
    def load(self) -> int:
        return len(self.waiting) + len(self.running)

    def take_step(self) -> float:
        """Schedule a step, or many steps of decoding; returns their seconds."""
        budget = self.limits.step_tokens
        self._prompts, self._decoding = [], []
        preempted = self._run_running(budget)
        budget -= len(self._decoding) + sum(new for _, new in self._prompts)
        if not preempted:
            self._admit(budget)
        assert self._prompts or self._decoding, "a request that can never run: too few blocks or tokens of a step"
        self._steps = 1
        if not self._prompts and not self.waiting:
            self._steps = self._steps_of_decoding()
        return self._seconds(self._steps)

    def cut(self, elapsed: float) -> float:
        """A request arrived: the steps begun by then, and their seconds."""
        if self._steps > 1:
            self._steps = self._steps_within(elapsed)
        return self._seconds(self._steps)

    def finish_step(self, now: float) -> list[Request]:
        """The step has ended; returns the requests that ended with it."""
        steps, counts = self._steps, self.counts
        counts.busy += self._seconds(steps)
        counts.steps += steps
        counts.prompt_steps += bool(self._prompts)
        counts.pairs += self._pairs()
        counts.context += steps * self._context() + len(self._decoding) * steps * (steps - 1) / 2
        counts.decoded += steps * len(self._decoding)
        for request in self._decoding:
            self._add_tokens(request, steps)
            self.cache.trim(request.lease, -(-self._stored(request) // self.limits.block))
        for request, new in self._prompts:
            request.computed += new
            if self.limits.found_when_computed:
                self._publish(request)
            if request.prefilled:
                self._add_tokens(request, 1)
                if request.on_prompt and not request.tried:
                    request.on_prompt(now)
        ended = [request for request in self.running if request.done >= request.reply]
        for request in ended:
            self.running.remove(request)
            self._release(request)
        self._prompts, self._decoding = [], []
        return ended

    # --- scheduling -------------------------------------------------------------------------------------------------

    def _run_running(self, budget: int) -> bool:
        """Whether a sequence had to give way."""
        preempted = False
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            new = 1 if request.prefilled else min(request.target - request.computed, budget)
            while self._missing(request, self._stored(request) + new) > self.cache.free:
                preempted = True
                self._preempt(self.running.pop())
                if len(self.running) <= index:
                    return True
            self._make_room(request, new)
            if request.prefilled:
                self._decoding.append(request)
            else:
                self._prompts.append((request, new))
            budget -= new
            index += 1
        return preempted

    def _admit(self, budget: int) -> None:
        limits = self.limits
        while self.waiting and budget > 0 and len(self.running) < limits.sequences:
            request = self.waiting[0]
            target = request.prompt + request.done
            path = request.path
            found = self.cache.found(path, (target - 1) // limits.block)
            new = target - found * limits.block
            if new > budget and not limits.chunked:
                return
            if self.cache.needed(path, found, -(-target // limits.block)) > self.cache.free:
                return
            self.waiting.popleft()
            new = min(new, budget)
            request.lease = self.cache.open(path, found)
            request.computed, request.target = found * limits.block, target
            if not request.tried:
                request.cached = found * limits.block
                self.counts.sent += request.prompt
                self.counts.cached += request.cached
            else:
                self.counts.repeated += target - found * limits.block
            self._make_room(request, new)
            self.running.append(request)
            self._prompts.append((request, new))
            budget -= new

    def _stored(self, request: Request) -> int:
        """Tokens with keys and values; the newest token of a reply gets its own in the next step."""
        return request.prompt + request.done - 1 if request.prefilled else request.computed

    def _missing(self, request: Request, tokens: int) -> int:
        """Blocks to add for ``tokens`` with keys and values."""
        assert request.lease is not None
        return max(0, -(-tokens // self.limits.block) - request.lease.blocks)

    def _make_room(self, request: Request, new: int) -> None:
        assert request.lease is not None
        tokens = self._stored(request) + new
        if not request.prefilled and not self.limits.found_when_computed:
            self.cache.extend(request.lease, min(tokens // self.limits.block, request.whole))
        self.cache.grow(request.lease, self._missing(request, tokens))

    def _publish(self, request: Request) -> None:
        assert request.lease is not None
        self.cache.publish(request.lease, min(request.computed // self.limits.block, request.whole))

    def _preempt(self, request: Request) -> None:
        self.counts.preemptions += 1
        self._decoding = [one for one in self._decoding if one is not request]
        self._prompts = [one for one in self._prompts if one[0] is not request]
        self._release(request)
        request.tried += 1
        request.computed, request.target = 0, 1  # nothing of it is left
        self.waiting.appendleft(request)

    def _release(self, request: Request) -> None:
        assert request.lease is not None
        written = (request.prompt + request.done - 1) // self.limits.block - request.whole if request.done else 0
        if written > 0:
            name = (request.name, "reply", request.done)
            self.cache.close(request.lease, name, written)
            request.path, request.whole = (*request.path, (name, written)), request.whole + written
        else:
            self.cache.close(request.lease)
        request.lease = None

    def _add_tokens(self, request: Request, count: int) -> None:
        request.done += count
        self.counts.generated += count

    # --- seconds ----------------------------------------------------------------------------------------------------

    def _context(self) -> int:
        return sum(request.prompt + request.done for request in self._decoding)

    def _pairs(self) -> float:
        return sum(new * (request.computed + new / 2) for request, new in self._prompts)

    def _seconds(self, steps: int) -> float:
        costs, sequences = self.costs, len(self._decoding)
        once = costs.step + costs.sequence * sequences + costs.context_token * self._context()
        prompts = costs.prompt_token * sum(new for _, new in self._prompts) + costs.pair * self._pairs()
        return steps * once + costs.context_token * sequences * steps * (steps - 1) / 2 + prompts

    def _steps_of_decoding(self) -> int:
        """Until a sequence ends, or its next block may be one too many."""
        steps = min(request.reply - request.done for request in self._decoding)
        if self.limits.blocks is not None:
            rounds = int(self.cache.free) // len(self._decoding)
            steps = min(steps, max(1, rounds * self.limits.block))
        for request in self._decoding:
            self.cache.grow(request.lease, self._missing(request, self._stored(request) + steps))
        return steps

    def _steps_within(self, elapsed: float) -> int:
        """Steps begun before ``elapsed`` seconds, at least one."""
        once, growth = self._seconds(1), self.costs.context_token * len(self._decoding) / 2
        linear = once - growth
        if growth > 0:
            steps = (-linear + math.sqrt(linear * linear + 4 * growth * elapsed)) / (2 * growth)
        else:
            steps = elapsed / linear if linear > 0 else self._steps
        return max(1, min(self._steps, math.ceil(steps - 1e-9)))
