"""Where a run is, for whoever shows it: its phase, what has been sampled, how long it will take.

One thread writes and others read; every value is replaced whole. Time left is that of the newest rollouts, by their
median, for each that is not done; what the current one has taken counts, up to what it should take::

    rollouts of 60, 58 and 62 s, 30 left, the current one began 15 s ago: 30 * 60 - 15 s
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

NEWEST = 5
"""Rollouts whose durations say how long the next ones take; the first of a run also pays for starts."""


class Phase(StrEnum):
    STARTING = "starting"
    SAMPLING = "sampling"
    LEARNING = "learning"
    SENDING = "sending weights"
    EVALUATING = "evaluating"
    SAVING = "saving"
    ENDING = "ending"
    """Converting, and stopping the engines."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What has been sampled since the run was started; numbers only grow."""

    trajectories: int = 0
    turns: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    sampled_tokens: int = 0

    def since(self, before: Counts) -> Counts:
        return Counts(
            self.trajectories - before.trajectories, self.turns - before.turns,
            self.prompt_tokens - before.prompt_tokens, self.cached_tokens - before.cached_tokens,
            self.sampled_tokens - before.sampled_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One look at a run."""

    name: str
    phase: Phase
    seconds: float
    """In this phase."""
    rollout: int
    """That is worked at, from 1; 0 before the first."""
    rollouts: int
    done: int
    left_s: float | None
    """None before a rollout has been timed."""
    expected: int
    """Trajectories of a rollout; a filter may need more."""
    sampled: Counts
    """In the current rollout."""
    last: Mapping[str, float]
    """Metrics of the last rollout that is done."""
    rewards: tuple[float, ...]
    """Of the rollouts that are done, oldest first."""


class Progress:
    def __init__(
        self, name: str, rollouts: int, expected: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name, self._rollouts, self._expected, self._clock = name, rollouts, expected, clock
        self._phase, self._began = Phase.STARTING, clock()
        self._rollout = self._done = 0
        self._rollout_began: float | None = None
        self._durations: deque[float] = deque(maxlen=NEWEST)
        self._last: Mapping[str, float] = {}
        self._rewards: tuple[float, ...] = ()
        self._before = Counts()
        self.counts: Callable[[], Counts] = Counts
        """Whoever samples puts its own here."""

    def seen(self, rewards: Iterable[float], done: int) -> None:
        """What an earlier process of this run has done."""
        self._rewards, self._done = tuple(rewards), done

    def enter(self, phase: Phase, number: int | None = None) -> None:
        """``number``: of the rollout that begins with this phase, from 0."""
        if number is not None:
            self._rollout, self._rollout_began, self._before = number + 1, self._clock(), self.counts()
        self._phase, self._began = phase, self._clock()

    def finish(self, metrics: Mapping[str, float]) -> None:
        """The current rollout is done."""
        assert self._rollout_began is not None, "a rollout begins before it ends"
        self._durations.append(self._clock() - self._rollout_began)
        self._last, self._done = dict(metrics), self._rollout
        self._rewards += (metrics["reward"],) if metrics.get("reward") is not None else ()

    def view(self) -> View:
        return View(
            name=self._name, phase=self._phase, seconds=self._clock() - self._began, rollout=self._rollout,
            rollouts=self._rollouts, done=self._done, left_s=self._left_s(), expected=self._expected,
            sampled=self.counts().since(self._before), last=self._last, rewards=self._rewards,
        )

    def _left_s(self) -> float | None:
        if not self._durations or self._rollout_began is None:
            return None
        each = median(self._durations)
        spent = self._clock() - self._rollout_began if self._rollout > self._done else 0.0
        return (self._rollouts - self._done) * each - min(spent, each)
