r"""A run that cannot learn says so, once: GRPO has no gradient where all siblings of a group earn the same.

After three rollouts in a row without two unlike rewards in any group, one warning says what the policy replied, how
its task reads that, and what to try::

    no group of the last 3 rollouts has two unlike rewards, so nothing is learnt. Asked 'Which key?' (red), the policy
    replied 'The key was red.', completed and read as ''. Where all replies are right, take harder rows or longer
    documents; else try a supervised start first (LOSS=sft on the same rows), another TASK or REWARD, longer replies
    (MEM_MAX_FINAL), wording of your own (MEM_PROMPTS), or a larger model
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..agents import outcome_weight
from ..system.text import one_line
from .host import HostArgs
from .reader import row_of, task_of
from .sample import Record, ended, reward_of

logger = logging.getLogger("mem_agent")

ROLLOUTS = 3
_equal_rollouts: Counter[str] = Counter()
"""Consecutive rollouts without two unlike rewards in any group, by run folder."""


def watch(host: HostArgs, samples: Sequence[Any]) -> None:
    """Take one rollout's samples into account; warns when ROLLOUTS of them had nothing to learn from."""
    groups: dict[Any, list[Any]] = {}
    for sample in filter(ended, samples):
        groups.setdefault(sample.group_index, []).append(sample)
    if not groups:
        return  # failures have their own counts
    differ = any(len(worths(host, group)) > 1 for group in groups.values())
    _equal_rollouts[host.save] = 0 if differ else _equal_rollouts[host.save] + 1
    if _equal_rollouts[host.save] == ROLLOUTS:
        logger.warning("no group of the last %d rollouts has two unlike rewards, so nothing is learnt. %s", ROLLOUTS,
                       explanation(host, samples))


def worths(host: HostArgs, group: Sequence[Any]) -> set[tuple[float | None, ...]]:
    """What the trajectories of a group are worth, those that failed left out: the reward, and those of their turns
    where they count."""
    turns_count, found = outcome_weight(host.config) < 1.0, set()
    for sample in filter(ended, group):
        record = Record.of(sample) if turns_count else None
        found.add((reward_of(sample, host.reward_key), *((record and record.state_totals) or ())))
    return found


def explanation(host: HostArgs, samples: Sequence[Any]) -> str:
    """What the policy replied to one of the samples, how its task reads that, and what to try."""
    sample = next(filter(ended, samples), samples[0])
    task, row, reply = task_of(host.config, sample), row_of(sample), sample.response or ""
    gold, answer = row.golds[0] if row.golds else "", task.read_answer(reply)
    said = f"Asked {one_line(row.question, 120)!r} ({gold[:80]}), the policy replied {one_line(reply, 200)!r}"
    return (f"{said}, {sample.status.value} and read as {answer[:80]!r}. Where all replies are right, take harder "
            "rows or longer documents; else try a supervised start first (LOSS=sft on the same rows), another TASK or "
            "REWARD, longer replies (MEM_MAX_FINAL), wording of your own (MEM_PROMPTS), or a larger model")
