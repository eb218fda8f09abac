"""A rollout on many engines: trajectories ask turn by turn, a router chooses the engine.

Routes: ``group`` and ``sample`` are a consistent hash of the group's or the trajectory's number, ``balanced`` deals
groups out evenly, ``round_robin`` deals out requests, ``recorded`` repeats a real run.

``lead``: of siblings that ask one turn the first one's prompt is computed before the others are sent. ``warm``: when
the first sibling asks a turn, one request computes what the prompts of the next turn will share.
"""

from __future__ import annotations

import hashlib
import heapq
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from .cache import Path
from .engine import Counts, Engine, Limits, Request, StepCosts
from .prompts import TrajectoryPlan, TurnPlan

ROUTES = ("group", "balanced", "sample", "round_robin", "recorded")
POINTS = 160
"""Of one engine on the ring of the consistent hash."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    engines: int
    costs: StepCosts
    limits: Limits
    route: str = "group"
    lead: bool = False
    warm: bool = False
    turn_s: float | None = 0.0
    """Between an answer and the next request: client, router, server. None repeats that of a real run."""
    parts: int = 1
    """Routing keys of a group: its siblings are divided among so many engines."""

    def __post_init__(self) -> None:
        assert self.route in ROUTES, self.route
        assert self.engines >= 1, self.engines


@dataclass(frozen=True)
class Outcome:
    """Seconds from the first request on."""

    seconds: float
    ended: Sequence[float]
    """Of each trajectory, sorted."""
    engines: Sequence[Counts]
    cached: Sequence[Sequence[int]]
    """Of each trajectory's turns, as the trajectories were given."""

    def share_done(self, share: float) -> float:
        """When ``share`` of the trajectories had ended."""
        return self.ended[max(0, round(share * len(self.ended)) - 1)]

    @property
    def sent(self) -> int:
        return sum(engine.sent for engine in self.engines)

    @property
    def computed(self) -> int:
        return sum(engine.computed for engine in self.engines)


def simulate(trajectories: Sequence[TrajectoryPlan], fleet: Fleet) -> Outcome:
    return _Run(trajectories, fleet).outcome()


@dataclass(order=True, slots=True)
class _Event:
    time: float
    number: int
    action: Callable[[float], None] = field(compare=False)


@dataclass(slots=True)
class _Slot:
    """An engine in time."""

    engine: Engine
    began: float = 0.0
    state: str = "idle"
    """``idle``, ``starting`` (a step is about to be scheduled) or ``working``."""
    token: int = 0
    """Of the end that counts; a step that was cut has another one."""


class _Run:
    def __init__(self, trajectories: Sequence[TrajectoryPlan], fleet: Fleet) -> None:
        self._trajectories, self._fleet = trajectories, fleet
        self._slots = [_Slot(Engine(fleet.costs, fleet.limits)) for _ in range(fleet.engines)]
        self._events: list[_Event] = []
        self._numbers, self._dealt = count(), count()
        self._ring = Ring(fleet.engines)
        self._ended: list[float] = []
        self._requests: list[list[Request]] = [[] for _ in trajectories]
        self._warmed: set[tuple[int, int]] = set()
        self._held: dict[tuple[int, int], list[tuple[int, Request]] | None] = {}
        self._shared = {(t.group, n): turn for t in trajectories for n, turn in enumerate(t.turns)}

    def outcome(self) -> Outcome:
        for place, trajectory in enumerate(self._trajectories):
            self._at(trajectory.turns[0].wait if self._fleet.turn_s is None else 0.0, self._asking(place, 0))
        while self._events:
            event = heapq.heappop(self._events)
            event.action(event.time)
        assert len(self._ended) == len(self._trajectories)
        cached = [[request.cached for request in requests] for requests in self._requests]
        engines = [slot.engine.counts for slot in self._slots]
        return Outcome(max(self._ended), sorted(self._ended), engines, cached)

    # --- trajectories -----------------------------------------------------------------------------------------------

    def _asking(self, place: int, number: int) -> Callable[[float], None]:
        return lambda now: self._ask(place, number, now)

    def _ask(self, place: int, number: int, now: float) -> None:
        trajectory = self._trajectories[place]
        turn = trajectory.turns[number]
        engine = self._route(trajectory, turn)
        request = Request(turn.path, turn.prompt, turn.reply, (place, number))
        request.on_end = lambda end: self._answered(place, number, end)
        self._requests[place].append(request)

        if self._fleet.lead and turn.shared:
            self._led((trajectory.group, number), engine, request, now)
        else:
            self._submit(engine, request, now)
        if self._fleet.warm:
            self._warm(trajectory.group, number, engine, now)

    def _led(self, group_turn: tuple[int, int], engine: int, request: Request, now: float) -> None:
        """Send the first sibling's request; the others' wait until its prompt is computed."""
        if group_turn not in self._held:
            self._held[group_turn] = []
            request.on_prompt = lambda time: self._let_go(group_turn, time)
        elif (held := self._held[group_turn]) is not None:
            held.append((engine, request))
            return
        self._submit(engine, request, now)

    def _let_go(self, group_turn: tuple[int, int], now: float) -> None:
        held, self._held[group_turn] = self._held[group_turn], None
        for engine, request in held or ():
            self._submit(engine, request, now)

    def _answered(self, place: int, number: int, now: float) -> None:
        turns = self._trajectories[place].turns
        if number + 1 == len(turns):
            self._ended.append(now)
            return
        wait = turns[number + 1].wait if self._fleet.turn_s is None else self._fleet.turn_s
        self._at(now + wait, self._asking(place, number + 1))

    def _warm(self, group: int, number: int, engine: int, now: float) -> None:
        key = (group, number + 1)
        turn = self._shared.get(key)
        if turn is None or key in self._warmed:
            return
        self._warmed.add(key)
        block = self._fleet.limits.block
        path = prefix(turn.path, turn.shared // block)
        tokens = sum(blocks for _, blocks in path) * block + 1
        if tokens > block:
            self._submit(engine, Request(path, tokens, 1, ("warm", *key)), now)

    def _route(self, trajectory: TrajectoryPlan, turn: TurnPlan) -> int:
        route = self._fleet.route
        if route == "recorded":
            return turn.engine
        if route == "round_robin":
            return next(self._dealt) % self._fleet.engines
        if route == "sample":
            return self._ring.engine_of(f"sample-{trajectory.number}")
        part = trajectory.number % self._fleet.parts
        if route == "balanced":
            return (trajectory.group * self._fleet.parts + part) % self._fleet.engines
        return self._ring.engine_of(f"group-{trajectory.group}-{part}")

    # --- engines ----------------------------------------------------------------------------------------------------

    def _at(self, time: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self._events, _Event(time, next(self._numbers), action))

    def _submit(self, number: int, request: Request, now: float) -> None:
        slot = self._slots[number]
        slot.engine.waiting.append(request)
        if slot.state == "idle":
            self._start_at(slot, now)
        elif slot.state == "working":
            self._end_at(slot, slot.began + slot.engine.cut(now - slot.began))

    def _start_at(self, slot: _Slot, now: float) -> None:
        """Whatever else is sent at this moment is there when the step is scheduled."""
        slot.state = "starting"
        self._at(now, lambda time: self._start(slot, time))

    def _start(self, slot: _Slot, now: float) -> None:
        slot.state, slot.began = "working", now
        self._end_at(slot, now + slot.engine.take_step())

    def _end_at(self, slot: _Slot, time: float) -> None:
        slot.token += 1
        token = slot.token

        def end(now: float) -> None:
            if token == slot.token:
                self._step_ended(slot, now)

        self._at(time, end)

    def _step_ended(self, slot: _Slot, now: float) -> None:
        for request in slot.engine.finish_step(now):
            if request.on_end:
                request.on_end(now)
        slot.state = "idle"
        if slot.engine.load:
            self._start_at(slot, now)


def prefix(path: Path, blocks: int) -> Path:
    """The extents that lie within the first ``blocks`` blocks."""
    taken: list[tuple[Any, int]] = []
    for name, size in path:
        if size > blocks:
            break
        taken.append((name, size))
        blocks -= size
    return tuple(taken)


class Ring:
    """A consistent hash."""

    def __init__(self, engines: int) -> None:
        points = sorted((_hash(f"{engine}/{point}"), engine) for engine in range(engines) for point in range(POINTS))
        self._keys, self._engines = [key for key, _ in points], [engine for _, engine in points]

    def engine_of(self, key: str) -> int:
        return self._engines[bisect(self._keys, _hash(key)) % len(self._keys)]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
