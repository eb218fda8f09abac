"""What siblings share is computed once, at the engine that has least to do.

**Where a turn goes** (MEM_ROUTING). Routers keep requests of one key at one engine, and put a new key where the fewest
requests are in flight (SGLang's ``manual`` with ``min_load``), where the fewest keys are bound (vLLM's
``sticky_least_loaded``; ``sessions`` ends keys), or where a hash says (``consistent_hash``). The next chunk is
new to every engine, so a group has nothing to lose by going elsewhere with each: the key of a turn is its group and
the beginning of its prompt that siblings share. So they stay together over a chunk, and but for the hash an engine
that fell behind is left with the next one. Prompts that begin alike in all turns (``memory_first``) keep one key, and
so do agents that do not say what is shared.

    group-3, question, chunk 0  ->  group-3/5f0c..  engine A        all 8 siblings
    group-3, question, chunk 1  ->  group-3/91be..  engine B        all 8 siblings, each when it gets there

**One goes ahead** (MEM_LEAD). vLLM knows a block from the moment it is scheduled, so siblings that arrive together
share it. SGLang knows it once it is computed: those that arrive together compute it side by side. There the first of
a group to reach a chunk sends what is shared by itself, for one token, and the others wait until that is answered.

Invariants: what goes ahead samples nothing that is used, and whatever becomes of it, aborts and failures included, no
trajectory fails or waits longer than for one request; a group's keys are forgotten with its last trajectory.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from array import array
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from ..agents.records import TurnRequest

logger = logging.getLogger(__name__)

WORTH_TOKENS = 256
"""A shorter beginning is computed sooner than its answer comes back."""


def turn_key(group: str, request: TurnRequest) -> str:
    """The routing key of one turn of a group whose turns are kept together chunk by chunk."""
    if not request.shared:
        return group
    shared = array("I", request.prompt_ids[: request.shared]).tobytes()
    return f"{group}/{hashlib.sha256(shared).hexdigest()[:16]}"


class Ahead:
    """What was sent ahead for the groups of one event loop."""

    def __init__(self) -> None:
        self._trajectories: defaultdict[str, int] = defaultdict(int)
        self._sent: dict[str, dict[str, asyncio.Task[Any]]] = {}

    @contextmanager
    def trajectory(self, group: str) -> Iterator[None]:
        """While it lasts, what is known about ``group`` is kept."""
        self._trajectories[group] += 1
        try:
            yield
        finally:
            self._trajectories[group] -= 1
            if not self._trajectories[group]:
                del self._trajectories[group]
                for task in self._sent.pop(group, {}).values():
                    task.cancel()

    async def follow(self, group: str, key: str, send: Callable[[], Coroutine[Any, Any, Any]]) -> bool:
        """Return once the beginning ``key`` has been sent ahead, or has failed to; whether it was this call that sent.

        ``send`` runs in a task of its own: a follower, and the one that leads, may be cancelled without the others.
        """
        assert self._trajectories[group], f"{group} has no trajectory"
        sent = self._sent.setdefault(group, {})
        leads = key not in sent
        if leads:
            sent[key] = asyncio.ensure_future(_quietly(send))
        await asyncio.wait({sent[key]})
        return leads

    def __len__(self) -> int:
        return len(self._trajectories) + len(self._sent)


async def _quietly(send: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    try:
        await send()
    except Exception as error:  # what was sent ahead only saves time; the turn itself will say what is wrong
        logger.debug("nothing was computed ahead: %s", error)
