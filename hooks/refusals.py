"""An end to a run whose frozen chat model refuses all that it is asked (REWARD=answer_utility, HTTP 4xx).

Hosts go on where trajectories fail, and a dynamic filter samples for ever where all of them do. So trajectories are
counted from a first refusal on; as many as a rollout has, of two groups at least, end the run. With 2 groups of 4::

    group       0 0 0 0 1 1 1 1 2 2      x refused    f no ranking, so nobody was asked
    outcome     f x x f x x x f x        the ninth ends the run: the streak began with the second
    outcome     x x . x x x x x x x      . scored, or timed out: not all are refused, and the streak begins anew

One row that the chat model finds too long is of one group, and ends nothing where a rollout has several.

FULLY_ASYNC samples in a thread whose host swallows what hooks raise. The error waits there for the log hook, which the
host calls with the rollout.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from ..agents.records import FailureKind
from ..system.errors import MemAgentError
from .host import HostArgs
from .record import Record

_GROUPS = 2
_OWN_REWARD = "answer_utility"


class AllRefused(MemAgentError):
    """The chat model refuses whatever it is asked."""


@dataclass
class _Streak:
    trajectories: int = 0
    groups: set[Hashable] = field(default_factory=set)
    """Of those that were refused."""
    said: str = ""
    """What the last refusal said."""


_streaks: dict[str, _Streak] = {}
_waiting: dict[str, MemAgentError] = {}
_lock = threading.Lock()


def scored(host: HostArgs, sample: Any) -> None:
    """Count a trajectory that the reward hook has scored, or failed to. Raises AllRefused."""
    record = Record.of(sample)
    if host.config.reward != _OWN_REWARD or record is None or record.evaluation:
        return
    refused = record.failure is FailureKind.ANSWER_REFUSED
    with _lock:
        if not refused and (record.failure is not None or _OWN_REWARD in record.reward_parts):
            _streaks.pop(host.save, None)
            return
        streak = _streaks.setdefault(host.save, _Streak())
        if refused:
            streak.groups.add(sample.group_index)
            streak.said = record.failure_message or ""
        streak.trajectories += bool(streak.groups)
        over = streak.trajectories >= host.rollout_groups * host.group_size
        over = over and len(streak.groups) >= min(_GROUPS, host.rollout_groups)
    if over:
        ends(host, AllRefused(f"REWARD={_OWN_REWARD}: the chat model refused every request of {streak.trajectories} "
                              f"trajectories, as many as a rollout has; the last: {streak.said}"))


def ends(host: HostArgs, error: MemAgentError) -> None:
    """Raise ``error``, or leave it to the log hook where the host would go on."""
    if not host.config.fully_async:
        raise error
    with _lock:
        _waiting.setdefault(host.save, error)


def raise_waiting(host: HostArgs) -> None:
    """Raise what FULLY_ASYNC has kept back."""
    with _lock:
        error = _waiting.pop(host.save, None)
    if error is not None:
        raise error
