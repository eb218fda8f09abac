"""Groups of a fully asynchronous run in vime, from their first turn until a rollout takes them.

vime's worker samples on while the trainer trains. A rollout then takes the oldest of all groups that have finished,
and the others are thrown away: most of the sampling, where training is the slower side. So no group begins while as
many are open as a rollout takes and a quarter more; the quarter keeps the engines busy while the last ones finish.

Invariants:
- a group is open from its first trajectory until a rollout takes it, it is aborted (the host puts it back) or broken
  off, or two rollouts passed it over, the second of which looked at all that had finished: then it was thrown away;
- what waits here holds places in the host's queue, but never those of a group that is open: hosts serve in order, and
  an aborted group makes room before it queues anew.

slime keeps what finishes beyond a rollout for the next one and needs none of this.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from .host import HostArgs
from .sample import was_aborted

_WAIT_S = 0.2


class OpenGroups:
    """``most`` groups of ``size`` trajectories at once; the worker's thread and the rollouts' both call it."""

    def __init__(self, most: int, size: int) -> None:
        self.most, self.size = most, size
        self._open: set[int] = set()
        self._ended: Counter[int] = Counter()
        self._finished: dict[int, int] = {}
        """Group to the number of rollouts that had been taken when it finished."""
        self._taken: set[int] = set()
        self._rollouts = self._dropped = 0
        self._lock = threading.Lock()

    def admit(self, group: int) -> bool:
        """Whether a trajectory of ``group`` may begin."""
        with self._lock:
            if group not in self._open and len(self._open) >= self.most:
                return False
            self._open.add(group)
            return True

    def end(self, group: int, *, aborted: bool) -> None:
        """One of its trajectories has ended."""
        with self._lock:
            if aborted:
                self._open.discard(group)
                return
            self._ended[group] += 1
            if self._ended[group] == self.size:
                self._open.add(group)
                self._finished[group] = self._rollouts

    def take(self, groups: set[int]) -> int:
        """A rollout has taken ``groups``, which may be said twice; the number of groups now known to be lost."""
        with self._lock:
            if groups == self._taken:
                return self._dropped
            self._taken = groups
            self._rollouts += 1
            lost = {g for g, before in self._finished.items() if g not in groups and before <= self._rollouts - 2}
            self._dropped = len(lost)
            for group in groups | lost:
                self._open.discard(group)
                self._ended.pop(group, None)
                self._finished.pop(group, None)
            return self._dropped


@cache
def _groups(run: str, most: int, size: int) -> OpenGroups:
    return OpenGroups(most, size)


def _of(host: HostArgs) -> OpenGroups | None:
    if not host.drops_groups:
        return None
    return _groups(host.save, host.rollout_groups + -(-host.rollout_groups // 4), host.group_size)


async def begin(host: HostArgs, sample: Any, is_aborting: Callable[[], bool]) -> None:
    """Wait until the group of ``sample`` may begin, or the host is about to end its rollouts."""
    groups = _of(host)
    if groups is None or sample.group_index is None:
        return
    while not groups.admit(sample.group_index) and not is_aborting():
        await asyncio.sleep(_WAIT_S)


def end(host: HostArgs, sample: Any, *, broken_off: bool = False) -> None:
    """Its trajectory has ended in whatever way.

    Args:
        broken_off: by an exception, after which the host has no group to give to a rollout.
    """
    groups = _of(host)
    if groups is not None and sample.group_index is not None:
        groups.end(sample.group_index, aborted=broken_off or was_aborted(sample))


def take(host: HostArgs, samples: Sequence[Any]) -> dict[str, int]:
    """A rollout consists of ``samples``: the metric ``dropped_groups``, where the host drops any."""
    groups = _of(host)
    if groups is None:
        return {}
    return {"dropped_groups": groups.take({s.group_index for s in samples if s.group_index is not None})}
