"""The part of a reward that looks at a whole rollout, and its state from rollout to rollout.

Hosts call the log hook with the rollout's number and then the converter without it, in one process; ``apply`` is
called by whichever comes first and does its work once. State is kept beside the checkpoints::

    SAVE_PATH/reward_state/0000017/     as rollout 17 left it; rollout 18 starts from it

Invariants:
- rollout n is scored with the state that rollout n - 1 left, in this process or in one before it;
- a state folder is whole or absent; the newest two stay, and those that a checkpoint continues from. Those of later
  rollouts, of a run that was set back, are left as they are: a journal may still lead there;
- failed and aborted trajectories, and those of another generate hook, are in no batch;
- LOSS=sft gives no rewards: none is loaded.

DYNAMIC_FILTER_ON=total asks what a rollout will earn before a host has told its number. Until it has, the rollout is
taken for the one after the newest checkpoint; that this was right is checked when the number is told.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..checkpoints.folders import TRACKER, is_numbered, latest, number_of, numbered
from ..config import Config, ConfigError
from ..rewards.added import Added
from ..rewards.answer_utility import AnswerUtility
from ..rewards.cosine_length import CosineLength
from ..rewards.reward import Answered, Parts, Reward, plain_parts
from ..system.files import naming, remove
from ..system.plugins import load_class, make, parse_settings
from .answer_utility import answer_utility
from .host import HostArgs
from .intrinsic import intrinsic_reward
from .record import Record, write_scores
from .sample import as_reward, ended, reward_of
from .task_row import reply_form, row_of, task_of

logger = logging.getLogger(__name__)

REWARDS: dict[str, type[Reward]] = {"task": Reward, "cosine": CosineLength, "answer_utility": AnswerUtility}
_NUMBER = re.compile("[0-9]{1,18}")
_KEPT = 2
_STATEFUL = frozenset({"batch_parts", "save", "load"})
"""Methods of a reward with a state."""


def load_reward(config: Config, host: HostArgs | None = None) -> Reward:
    """A fresh reward of the configured kind, with MEM_IR's on top; without ``host`` one to look at, that scores
    nothing. Raises ConfigError.
    """
    own = answer_utility(config, host) if config.reward == "answer_utility" else load_own_reward(config)
    reward, intrinsic = own, intrinsic_reward(config)
    reward = reward if intrinsic is None else Added(reward, intrinsic)
    if config.dynamic_filter_on == "total" and not reward.tells_ahead:
        raise ConfigError(
            f"DYNAMIC_FILTER_ON=total: REWARD={config.reward!r} looks at whole rollouts and cannot say before what an "
            "answer will earn (no expected_parts); take reward or accuracy"
        )
    return reward


def load_own_reward(config: Config) -> Reward:
    """A fresh reward of REWARD's kind alone. Raises ConfigError."""
    kind = load_class("REWARD", config.reward, REWARDS, Reward)
    own = {name for name in _STATEFUL if getattr(kind, name) is not getattr(Reward, name)}
    missing = sorted(_STATEFUL - own)
    if own & {"save", "load"} and missing:
        raise ConfigError(
            f"REWARD={config.reward!r}: {kind.__name__} has no method {missing[0]}; a reward with a state has "
            f"{', '.join(sorted(_STATEFUL))}, see {Reward.__module__}.Reward"
        )
    return make("REWARD", config.reward, kind, parse_settings(kind.Settings, config.reward_args, "REWARD_ARGS"))


@dataclass
class _Run:
    """The reward of a run in this process, and the rollout whose batch it has to see next."""

    reward: Reward
    next_rollout: int | None = None
    guessed: bool = False
    """``next_rollout`` is what the newest checkpoint implies; no host has told it yet."""


_runs: dict[tuple[Config, str], _Run] = {}


def reward_for(host: HostArgs) -> Reward:
    """The run's one reward in this process.

    Raises:
        ConfigError: the state that its parts depend on is not there.
    """
    run = _run(host)
    if run.reward.reads_state:
        _anticipate(host, run)
    return run.reward


def can_prepare(host: HostArgs, rollout: int) -> bool:
    """Whether the state before ``rollout``, if the reward has any, is there."""
    run = _run(host)
    known = not _has_state(run.reward) or rollout in (0, run.next_rollout)
    return known or _folder(host, rollout - 1).is_dir()


def prepare(host: HostArgs, rollout: int) -> None:
    """Bring the reward to the state before ``rollout``, of which nothing is sampled yet; for a host that can say so.

    Raises:
        ConfigError: the reward has a state, and that one is not there.
    """
    if host.config.supervised:
        return
    run = _run(host)
    if _has_state(run.reward):
        _continue(host, run, rollout)
        run.next_rollout = rollout
    run.reward.begin()


def totals(host: HostArgs, samples: Sequence[Any]) -> list[float]:
    """The rewards of trajectories that ended, with all that the rollout as a whole will add to them.

    Raises:
        ConfigError: the state that they depend on is not there.
    """
    run = _run(host)
    if _has_state(run.reward):
        _anticipate(host, run)
    records = [(sample, record) for sample in samples if (record := Record.of(sample)) and not record.batch_scored]
    expected = run.reward.expected_parts([answered(host.config, sample, record) for sample, record in records])
    known = {id(sample): sum(_joined(record, parts).values())
             for (sample, record), parts in zip(records, expected, strict=True)}
    return [known[id(sample)] if id(sample) in known else reward_of(sample, host.reward_key) or 0.0
            for sample in samples]


def metrics(host: HostArgs) -> dict[str, float]:
    """What the run's reward tells about its state and the last rollout. Raises ConfigError."""
    try:
        return plain_parts(_run(host).reward.metrics())
    except ValueError as error:
        raise ConfigError(f"REWARD={host.config.reward!r}: metrics: {error}") from None


def apply(host: HostArgs, samples: Sequence[Any], rollout: int | None) -> None:
    """Add what the whole rollout earns to the rewards of its samples, unless that was done.

    Args:
        rollout: its number; None where the host does not tell.

    Raises:
        ConfigError: the reward has a state, and the one before this rollout is not there.
    """
    if host.config.supervised:
        return
    run = _run(host)
    if type(run.reward).batch_parts is Reward.batch_parts:
        return
    records = [(sample, record) for sample in samples if ended(sample) and (record := Record.of(sample))]
    fresh = [(sample, record) for sample, record in records if not record.batch_scored]
    if records and not fresh:
        return
    if not records and rollout is None:
        return  # where all have failed, the log hook has kept the state already
    assert len(fresh) == len(records), "a rollout is scored as a whole"
    if _has_state(run.reward):
        _continue(host, run, rollout)
    if fresh:
        _score(host, run.reward, fresh)
    if _has_state(run.reward):
        assert rollout is not None
        run.next_rollout = rollout + 1
        _save(host, run.reward, rollout)


def _score(host: HostArgs, reward: Reward, batch: Sequence[tuple[Any, Record]]) -> None:
    earned = list(reward.batch_parts([answered(host.config, sample, record) for sample, record in batch]) or ())
    name = f"REWARD={host.config.reward!r}: batch_parts"
    if len(earned) != len(batch):
        raise ConfigError(f"{name} gave parts for {len(earned)} of {len(batch)} answers; it owes one mapping for each")
    try:
        checked = [plain_parts(parts) for parts in earned]
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    for (sample, record), parts in zip(batch, checked, strict=True):
        total = _joined(record, parts)
        write_scores(sample, replace(record, reward_parts=total, batch_scored=True))
        sample.reward = as_reward(sum(total.values()), host.reward_key)


def _joined(record: Record, parts: Parts) -> dict[str, float]:
    """All parts, in the one order in which their sum has the same last bit, told ahead or given."""
    return {**record.reward_parts, **parts}


def answered(config: Config, sample: Any, record: Record) -> Answered:
    row = row_of(sample)
    return Answered(
        row.question, row.golds, row.metadata, sample.response, record.reward_parts, record.accuracy or 0.0,
        sample.group_index, task_of(config, sample).reasoning(reply_form(sample)[0] + sample.response),
        {**record.counts, "max_final_tokens": config.mem_max_final},
    )


def _run(host: HostArgs) -> _Run:
    key = (host.config, host.save)
    if key not in _runs:
        _runs[key] = _Run(load_reward(host.config, host))
    return _runs[key]


def _name(config: Config) -> str:
    return f"REWARD={config.reward!r}" + f" MEM_IR={config.mem_ir}" * (config.mem_ir != "no")


def _has_state(reward: Reward) -> bool:
    return type(reward).save is not Reward.save


def _anticipate(host: HostArgs, run: _Run) -> None:
    """Bring the reward to the state before the rollout that is coming, whose number no host has told yet."""
    if run.next_rollout is not None:
        return
    newest = latest(host.save)
    implied = number_of(newest) + 1 if newest is not None and is_numbered(newest) else 0
    _continue(host, run, implied)
    run.next_rollout, run.guessed = implied, True


# --- state --------------------------------------------------------------------------------------------------------


def _continue(host: HostArgs, run: _Run, rollout: int | None) -> None:
    """Bring the reward to the state before ``rollout``."""
    if rollout is None:
        raise ConfigError(
            f"{_name(host.config)} has a state, which needs the rollout's number; add "
            "--custom-rollout-log-function-path mem_agent.rollout.log_rollout"
        )
    if run.next_rollout == rollout:
        run.guessed = False
        return
    if run.guessed:
        remedy = f"write {rollout - 1} into it" if rollout else "remove it"
        if run.reward.reads_state:
            raise ConfigError(
                f"{_name(host.config)}: rollout {rollout} was scored as rollout {run.next_rollout}, which follows "
                f"what {Path(host.save) / TRACKER} names; {remedy}"
            )
        raise ConfigError(
            f"DYNAMIC_FILTER_ON=total: rollout {rollout} was filtered as rollout {run.next_rollout}, which follows "
            f"what {Path(host.save) / TRACKER} names; {remedy}, or take DYNAMIC_FILTER_ON=reward"
        )
    if run.next_rollout is not None:  # set back: what it has seen since must not count
        run.reward = load_reward(host.config, host)
    if rollout > 0:
        folder = _folder(host, rollout - 1)
        if not folder.is_dir():
            raise ConfigError(
                f"{folder}: the state of {_name(host.config)} before rollout {rollout} is not there; bring "
                "it from where the run was, or start a new SAVE_PATH"
            )
        run.reward.load(folder)
        logger.info("the reward continues from %s", folder)


def _save(host: HostArgs, reward: Reward, rollout: int) -> None:
    final = _folder(host, rollout)
    draft = final.with_name(f".{final.name}.writing")
    remove(draft)
    draft.mkdir(parents=True)
    with naming(final):
        reward.save(draft)
    remove(final)
    draft.rename(final)
    checkpoints = {number_of(folder) for folder in numbered(host.save)}
    numbers = [int(old.name) for old in final.parent.iterdir() if _NUMBER.fullmatch(old.name)]
    until = [number for number in sorted(set(numbers)) if number <= rollout and _folder(host, number).is_dir()]
    newest = max((number for number in checkpoints if number <= rollout), default=-1)
    for number in until[:-_KEPT]:
        awaited = number > newest and (number + 1) % host.config.save_interval == 0  # its checkpoint may come yet
        if number not in checkpoints and not awaited:
            remove(_folder(host, number))


def _folder(host: HostArgs, rollout: int) -> Path:
    return Path(host.save) / "reward_state" / f"{rollout:07d}"
