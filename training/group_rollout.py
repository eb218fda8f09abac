"""One training rollout: the next groups of documents through the hooks, side by side.

Invariants:
- the batch is the first ``batch_size`` groups, in data order, that survive the dynamic filter; over-sampling only
  starts later groups early. A slow document is never dropped for being slow, and the same weights and seeds give the
  same batch;
- leftovers are cancelled and their documents are drawn again by the next rollout;
- every trajectory of an accepted group is in the result, failed ones included.

Example, batch of 2, 3 in flight, the filter drops group 5::

    started 4 5 6 | 4 kept | 5 dropped, 7 started | 6 kept -> batch [4, 6], next group 7, group 7 cancelled
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ..agents.records import FailureKind
from ..hooks.metrics import failure_of
from ..hooks.sample import Record, Sample, ended
from ..system.errors import MemAgentError
from ..system.gather import gather_or_cancel

Group = list[Sample]
MAX_DROPPED_PER_BATCH = 20
SERVER_FAILURES = frozenset(
    {FailureKind.CONNECTION, FailureKind.TIMEOUT, FailureKind.SERVER_ERROR, FailureKind.RATE_LIMITED,
     FailureKind.BAD_RESPONSE, FailureKind.ANSWER_MODEL}
)
"""Failures that a dead or hung server can cause; a document or a prompt causes the others."""


class RolloutError(MemAgentError):
    """A rollout that cannot give a batch."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """The pack's (or anyone's) hooks, with the hosts' signatures."""

    generate: Callable[..., Awaitable[Sample]]
    reward: Callable[..., Awaitable[float]]
    keep: Callable[..., bool] | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    groups: list[Group]
    next_group: int
    dropped: list[Group]
    """Groups that the filter left out; they cost as much as the others, so metrics count them."""

    @property
    def samples(self) -> list[Sample]:
        return [sample for group in self.groups for sample in group]

    @property
    def sampled(self) -> list[Sample]:
        return [sample for group in (*self.groups, *self.dropped) for sample in group]

    @property
    def lost(self) -> bool:
        """Whether a server may be to blame for a failure; in a dropped group it may be why the filter dropped it."""
        return any(
            sample.status is Sample.Status.ABORTED  # nobody aborts here, so an engine did
            or failure_of(sample) in SERVER_FAILURES
            for sample in self.sampled
        )


async def collect_batch(
    hooks: Hooks,
    args: Any,
    group_at: Callable[[int], Group],
    first_group: int,
    batch_size: int,
    in_flight: int,
    sampling: Callable[[Sample], dict[str, Any]],
) -> Batch:
    """Run groups from ``first_group`` on until ``batch_size`` of them are kept.

    Raises:
        RolloutError: the filter dropped MAX_DROPPED_PER_BATCH times the batch, or not one trajectory survived.
    """
    running: deque[asyncio.Task[Group]] = deque()
    started = first_group
    kept: list[Group] = []
    dropped: list[Group] = []
    try:
        while len(kept) < batch_size:
            while len(running) < max(in_flight - len(kept), batch_size - len(kept)):
                running.append(asyncio.ensure_future(_run_group(hooks, args, group_at(started), sampling)))
                started += 1
            group = await running.popleft()
            if hooks.keep is None or hooks.keep(args, group):
                kept.append(group)
            else:
                dropped.append(group)
                _stop_if_hopeless(len(dropped), batch_size)
        next_group = started - len(running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    batch = Batch(kept, next_group, dropped)
    _require_survivors(batch.samples)
    return batch


async def _run_group(hooks: Hooks, args: Any, group: Group, sampling: Callable[[Sample], dict[str, Any]]) -> Group:
    return await gather_or_cancel(*(_run_one(hooks, args, sample, sampling(sample)) for sample in group))


async def _run_one(hooks: Hooks, args: Any, sample: Sample, sampling: dict[str, Any]) -> Sample:
    sample = await hooks.generate(args, sample, sampling)
    if sample.reward is None and sample.status is not Sample.Status.ABORTED:
        sample.reward = await hooks.reward(args, sample)
    return sample


def _stop_if_hopeless(dropped: int, batch_size: int) -> None:
    if dropped >= MAX_DROPPED_PER_BATCH * batch_size:
        raise RolloutError(
            f"the dynamic filter dropped {dropped} groups before a batch of {batch_size} was full: rewards no longer "
            f"differ within groups; set DYNAMIC_FILTER=none or change the data"
        )


def _require_survivors(samples: list[Sample]) -> None:
    if any(map(ended, samples)):
        return
    records = [record for sample in samples if (record := Record.of(sample)) is not None]
    first = next((record.failure_message for record in records if record.failure_message), "aborted")
    raise RolloutError(f"all {len(samples)} trajectories of a rollout failed; the first: {first}")
