r"""A run that cannot learn says so, once: GRPO has no gradient where all siblings of a group earn the same.

After three rollouts in a row without two unlike rewards in any group, one warning says what the policy replied, why it
earns no more, and what to try::

    no group of the last 3 rollouts has two unlike rewards, so nothing is learnt. Asked 'Which key?' (red), the policy
    replied 'The key was red.': TASK=qa finds no answer in it. Try a supervised start first (LOSS=sft on the same
    rows), another TASK or REWARD, wording of your own (MEM_PROMPTS), or a larger model
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..agents import outcome_weight
from ..agents.records import Outcome
from ..system.text import one_line
from .host import HostArgs
from .reader import row_of, task_name, task_of
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
    """What the policy replied to one of the samples, why it earns no more, and what to try."""
    finished = list(filter(ended, samples))
    records = [Record.of(sample) for sample in finished]
    if finished and all(record and record.accuracy and record.accuracy > 0 for record in records):
        return "All trajectories are right: take harder rows or longer documents"
    sample = finished[0] if finished else samples[0]
    task, row, reply = task_of(host.config, sample), row_of(sample), sample.response or ""
    answer, gold = task.read_answer(reply), row.golds[0] if row.golds else ""
    if sample.status.value == Outcome.TRUNCATED:
        why = f"it was cut at MEM_MAX_FINAL={host.config.mem_max_final}"
    elif not answer:
        why = f"TASK={task_name(host.config, sample)} finds no answer in it"
    else:
        why = f"its answer is {answer[:80]!r}"
    said = f"Asked {one_line(row.question, 120)!r} ({gold[:80]}), the policy replied {one_line(reply, 200)!r}: {why}"
    return (f"{said}. Try a supervised start first (LOSS=sft on the same rows), another TASK or REWARD, wording of "
            "your own (MEM_PROMPTS), or a larger model")
