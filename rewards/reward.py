r"""Training rewards beyond what a task says of one answer: whole batches, frozen models, memories of earlier answers.

``REWARD=task`` (the default) is the task's reward and nothing else. Other rewards derive from ``Reward``. They are
given:

1. each answer alone, as soon as it is there (``parts``; it may wait for a server), then
2. all answers of a rollout together, in the one process that converts them (``batch_parts``),

and give named parts whose sum trains. Evaluation knows none of this: it measures with the task.

State that outlives a rollout is saved with the run, after every rollout, and put back before the next one when a run
continues (``save``, ``load``). Only ``batch_parts`` may change it. Invariant that a reward must keep: what a batch
earns depends on the batch and the state before it alone, not on the order of the batch, so a resumed run gives the
same rewards as an unbroken one.

Example, a bonus for answers that no other trajectory of the rollout gave::

    answers   red red blue        batch_parts   {"rare": 0} {"rare": 0} {"rare": 1}
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, FiniteFloat

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
    """What the task says it is worth; in ``batch_parts`` with what ``parts`` has made of it."""
    accuracy: float = 0.0
    """What the task says the answer is worth, without what it gives for form."""
    group: Hashable = None
    """Siblings share it."""
    reasoning: str = ""
    """The part of the reply that led to its answer; all of it where the task asks for no such part."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """What the agent counted: turns, rounds, response_tokens ...; and ``max_final_tokens``, the final turn's most."""


@dataclass(frozen=True)
class RewardSettings:
    """What every reward takes from REWARD_ARGS; derive your own settings from it."""

    overlong_buffer: Annotated[int, Field(ge=0)] = 0
    """Tokens before MEM_MAX_FINAL in which a final reply's reward falls; 0: length is free."""
    overlong_penalty: Annotated[FiniteFloat, Field(ge=0)] = 1.0
    """What the longest final reply pays."""


class Reward:
    """``REWARD=task``; the base of every other."""

    Settings: ClassVar[type] = RewardSettings
    """A frozen dataclass with defaults, read from REWARD_ARGS."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    async def parts(self, answer: Answered) -> Parts:
        """The parts of one answer's reward; those of its task unless this returns others."""
        return answer.parts

    def batch_parts(self, batch: Sequence[Answered]) -> Sequence[Parts]:
        """What each answer of a rollout earns besides, in the batch's order; failed trajectories are not in it."""
        return [{}] * len(batch)

    def metrics(self) -> Mapping[str, float]:
        """Numbers for the log about the state and the last rollout that was scored, by name."""
        return {}

    def save(self, folder: Path) -> None:
        """Write the state into ``folder``, which is empty. A reward without state writes nothing."""

    def load(self, folder: Path) -> None:
        """Take the state from a folder that ``save`` has written."""


def plain_parts(parts: Any, by: Callable[..., Any], name: str = "answer") -> dict[str, float]:
    """What ``by`` gave as a reward: named parts, or one number, which gets the ``name``, as plain floats. Users'
    rewards are numpy's and torch's, which hosts and the journal cannot write.

    Raises:
        ValueError: it is neither, or not finite.
    """
    named = parts if isinstance(parts, Mapping) else {name: parts}
    try:
        found = {str(part): float(value) for part, value in named.items()}
    except (TypeError, ValueError):
        found = {name: math.nan}
    if not all(map(math.isfinite, found.values())):
        code = getattr(inspect.unwrap(by), "__code__", None)
        place = f"{code.co_filename}:{code.co_firstlineno}: {by.__qualname__}" if code else repr(by)
        raise ValueError(f"{place} gave {parts!r:.80}, expected a finite number, or several by name: "
                         "{'answer': 1.0}")
    return found


def overlong_cost(settings: Any, tokens: int, most: int) -> float:
    """What a final reply of ``tokens``, of ``most`` at most, pays before it is cut: DAPO's soft over-long punishment
    (arXiv 2503.14476, equation 13). A reply that its task cannot read pays as the longest one does.

        overlong_penalty * clip((tokens - (most - buffer)) / buffer, 0, 1)

    With at most 16,384 tokens, a buffer of 4,096 and a penalty of 1::

        tokens   12,288 and less    14,336    16,384
        cost     0                  0.5       1
    """
    buffer = getattr(settings, "overlong_buffer", 0)  # settings of a user's own may not derive from RewardSettings
    if buffer <= 0:
        return 0.0
    share = min(1.0, max(0.0, (tokens - (most - buffer)) / buffer))
    return float(settings.overlong_penalty * share)


class Added(Reward):
    """MEM_IR on top of REWARD: all that ``first`` gives, and what ``more`` gives besides, under other names.

    The state of each has a folder of its own inside the run's.
    """

    def __init__(self, first: Reward, more: Reward) -> None:
        super().__init__(first.settings)
        self._named = {"reward": first, "added": more}

    async def parts(self, answer: Answered) -> Parts:
        for reward in self._named.values():
            answer = replace(answer, parts=plain_parts(await reward.parts(answer), reward.parts))
        return answer.parts

    def batch_parts(self, batch: Sequence[Answered]) -> Sequence[Parts]:
        given, added = ([plain_parts(parts, reward.batch_parts, "batch") for parts in reward.batch_parts(batch)]
                        for reward in self._named.values())
        return [{**one, **other} for one, other in zip(given, added, strict=True)]

    def metrics(self) -> Mapping[str, float]:
        return {name: value for reward in self._named.values() for name, value in reward.metrics().items()}

    def save(self, folder: Path) -> None:
        for name, reward in self._named.items():
            (folder / name).mkdir()
            reward.save(folder / name)

    def load(self, folder: Path) -> None:
        for name, reward in self._named.items():
            reward.load(folder / name)


# --- REWARD=cosine --------------------------------------------------------------------------------------------------

RIGHT = 0.5
"""An answer worth this much to its task is right."""


@dataclass(frozen=True)
class CosineSettings(RewardSettings):
    max_tokens: Annotated[int, Field(ge=0)] = 0
    """Tokens beyond which length no longer counts; 0: those of the final turn, MEM_MAX_FINAL."""


class CosineLength(Reward):
    r"""``REWARD=cosine``: the shorter of two right answers is worth more, the shorter of two wrong ones less.

        r = lo + (hi - lo) / 2 * (1 + cos(pi * progress)),   progress = tokens / max_tokens, at most 1

    with hi for the shortest and lo for the longest: 1 and .5 for right answers, -1 and -.5 for wrong ones.

        tokens of 200    0      50       100     150       200 and more
        right            1      0.927    0.75    0.573     0.5
        wrong           -1     -0.927   -0.75   -0.573    -0.5

    Source: ``get_cosine_scaled_reward`` of Memory-R's ``utils_gsm8k.py`` (a193f4f), after Open-R1. There ``tokens``
    are characters set against a limit in tokens, and beyond the limit the cosine turns round: 400 characters of 200
    tokens are worth what none are. Its trainer adds this beside all other rewards, as here.

    A trajectory's tokens are those of all its turns. Where an agent writes more than its answer, set ``max_tokens``.
    """

    Settings = CosineSettings

    async def parts(self, answer: Answered) -> Parts:
        most = self.settings.max_tokens or answer.counts["max_final_tokens"]
        short, long = (1.0, 0.5) if answer.accuracy >= RIGHT else (-1.0, -0.5)
        progress = min(1.0, answer.counts["response_tokens"] / most)
        return {**answer.parts, "length": long + (short - long) / 2 * (1.0 + math.cos(math.pi * progress))}
