"""Training rewards beyond what a task says of one answer: whole batches, frozen models, memories of earlier answers.

``REWARD=task`` (the default) is the task's reward and nothing else. Other rewards derive from ``Reward``, see

1. each answer alone, as soon as it is there (``parts``; it may wait for a server), then
2. all answers of a rollout together, in the one process that converts them (``batch_parts``),

and give named parts whose sum trains. Evaluation knows none of this: it measures with the task.

State that outlives a rollout is saved with the run, after every rollout, and put back before the next one when a run
continues (``save``, ``load``); ``batch_parts`` alone may read or change it (``reads_state``: ``parts`` may read it).
Invariant that a reward must keep: what a batch earns depends on the batch and the state before it alone, not on the
order of the batch, so a resumed run gives the same rewards as an unbroken one.

Example, a bonus for answers that no other trajectory of the rollout gave::

    answers   red red blue        batch_parts   {"rare": 0} {"rare": 0} {"rare": 1}
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ..system.plugins import NoSettings

Parts = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Answered:
    """A trajectory that ended, as rewards see it."""

    question: str
    golds: tuple[str, ...]
    metadata: Mapping[str, Any]
    """The row's, without its document."""
    reply: str
    """The decoded final reply, thinking removed."""
    parts: Parts
    """What the task says it is worth; in ``batch_parts`` with all that was added since."""
    accuracy: float = 0.0
    """What the task says the answer is worth, without what it gives for form."""
    group: Hashable = None
    """Siblings share it."""
    reasoning: str = ""
    """The part of the reply that led to its answer; all of it where the task asks for no such part."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """What the agent counted: turns, rounds, response_tokens ...; and ``max_final_tokens``, the final turn's most."""


class Reward:
    """``REWARD=task``; the base of every other."""

    Settings: ClassVar[type] = NoSettings
    """A frozen dataclass with defaults, read from REWARD_ARGS."""
    reads_state: ClassVar[bool] = False
    """Whether ``parts`` reads the state, which is then put back before the first answer is scored. A host that samples
    ahead asks it while an earlier rollout's state stands."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def begin(self) -> None:
        """A rollout begins, and no answer that was scored before goes into it. The embedded host alone tells."""

    async def parts(self, answer: Answered) -> Parts:
        """The parts of one answer's reward; those of its task unless this returns others."""
        return answer.parts

    def batch_parts(self, batch: Sequence[Answered]) -> Sequence[Parts]:
        """What each answer of a rollout earns besides, in the batch's order; failed trajectories are not in it."""
        return [{}] * len(batch)

    @property
    def tells_ahead(self) -> bool:
        """Whether ``expected_parts`` can be asked."""
        kind = type(self)
        return kind.batch_parts is Reward.batch_parts or kind.expected_parts is not Reward.expected_parts

    def expected_parts(self, answers: Sequence[Answered]) -> Sequence[Parts]:
        """What ``batch_parts`` of the coming rollout will give these answers, whoever else is in it; reads only.

        For rewards in which an answer's parts depend on the answer and the state before the rollout alone:
        DYNAMIC_FILTER_ON=total asks before the rollout is whole.
        """
        return [{}] * len(answers)

    def metrics(self) -> Mapping[str, float]:
        """Numbers for the log about the state and the last rollout that was scored, by name."""
        return {}

    def save(self, folder: Path) -> None:
        """Write the state into ``folder``, which is empty. A reward without state writes nothing."""

    def load(self, folder: Path) -> None:
        """Take the state from a folder that ``save`` has written."""


def plain_parts(parts: Any) -> dict[str, float]:
    """Named parts as plain floats: users' rewards are numpy's and torch's, which hosts and the journal cannot write.

    Raises:
        ValueError: they are no mapping of names to finite numbers.
    """
    if not isinstance(parts, Mapping):
        raise ValueError(f"gave {parts!r:.80}, expected named parts, {{'answer': 1.0}}")
    try:
        found = {str(name): float(value) for name, value in parts.items()}
    except (TypeError, ValueError):
        found = {"": math.nan}
    if not all(map(math.isfinite, found.values())):
        raise ValueError(f"gave {dict(parts)!r:.80}, expected finite numbers")
    return found
