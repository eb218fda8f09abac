"""The converter hook: trajectories to training rows, one row per turn.

    --custom-convert-samples-to-train-data-path mem_agent.custom_convert.custom_convert

Invariants:
- every trajectory given has at least one row: a failed one becomes one fully masked placeholder row, so a step never
  loses a trajectory (``--global-batch-size`` counts trajectories, by ``rollout_ids``);
- all rows of a trajectory carry the same ``rollout_ids`` entry and the same ``rollout_mask_sums`` (trained tokens of
  the whole trajectory): the host's loss then weighs each trajectory once, however many turns it has;
- they carry the same advantage, undivided by the number of turns, unless turns earn rewards of their own, which then
  mix in (``turn_advantages``), or have a weight;
- ``len(loss_masks[i]) == len(rollout_log_probs[i]) == response_lengths[i] < len(tokens[i])``;
- no row is trimmed; rows are added, fully masked, until each optimizer step's count divides evenly over data-parallel
  ranks where the host's scheduler would otherwise crash on rows that fill their micro-batch.

Worked example, one group of two trajectories with rewards 1 and 0, turns of 3+2 and 2 trained tokens::

    rollout_ids         [7, 7, 8]
    rewards             [0.5, 0.5, -0.5]       reward - group mean, the same on both turns of trajectory 7
    rollout_mask_sums   [5, 5, 2]
    response_lengths    [3, 2, 2]
"""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .agents import agent_settings, outcome_weight
from .hooks import rewards, traces
from .hooks.host import HostArgs
from .hooks.metrics import failure_of
from .hooks.sample import PLACEHOLDER, Record, has_failed, lost, require_survivors, reward_of, truncated
from .system.errors import MemAgentError

logger = logging.getLogger(__name__)

COLUMNS = ("tokens", "response_lengths", "rewards", "raw_reward", "truncated", "sample_indices", "loss_masks",
           "rollout_ids", "rollout_mask_sums", "rollout_log_probs")


class ConvertError(MemAgentError):
    """A sample of another generate hook that cannot become a training row."""


@dataclass(frozen=True, slots=True)
class _Row:
    tokens: list[int]
    response_length: int
    loss_mask: list[int]
    log_probs: list[float] | None
    truncated: int
    turn: int = 0
    weight: float = 1.0  # factor of its advantage


@dataclass(frozen=True, slots=True)
class _Trajectory:
    sample: Any
    rollout_id: int
    group: Hashable
    reward: float | None  # None: failed, aborted or not to be trained, so outside the group's statistics
    raw_reward: float
    rows: list[_Row]
    turn_rewards: list[float] | None  # what its turns earned by themselves

    @property
    def mask_sum(self) -> int:
        return sum(sum(row.loss_mask) for row in self.rows)


def custom_convert(args: Any, samples: list[Any]) -> dict[str, list[Any]]:
    """The host's training data for one rollout. ``rewards`` are the normalised advantages.

    Raises:
        AllFailed: there is nothing to learn from.
        ConvertError: a sample cannot become a training row.
    """
    host = HostArgs.of(args)
    require_survivors(samples, "a rollout")
    rewards.apply(host, samples, None)
    ids = _rollout_ids(samples)
    trajectories = [_unroll(host, s, i) for s, i in zip(samples, ids, strict=True)]
    settings, groups = agent_settings(host.config), [t.group for t in trajectories]
    advantages = group_advantages([t.reward for t in trajectories], groups, host.config.adv_std)
    by_turn = turn_advantages(advantages, [t.turn_rewards for t in trajectories], groups,
                              outcome_weight(host.config), getattr(settings, "state_weight", 1.0))
    data: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    by_row = [_row_advantages(*one) for one in zip(trajectories, advantages, by_turn, strict=True)]
    for first, last in _steps(host, len(trajectories)):
        step = range(first, last)
        for n in step:
            mask_sum = trajectories[n].mask_sum
            for row, advantage in zip(trajectories[n].rows, by_row[n], strict=True):
                _append(data, row, trajectories[n], mask_sum, advantage)
        # Padding belongs to the step's last trajectory and changes nothing in a per-trajectory loss; under a global
        # token mean every host counts each row as one token, like any fully masked row.
        for _ in range(_missing_rows(host, sum(len(trajectories[n].rows) for n in step))):
            _append(data, _placeholder(), trajectories[last - 1], mask_sum, 0.0)
    if all(log_probs is None for log_probs in data["rollout_log_probs"]):
        del data["rollout_log_probs"]  # only samples of another generate hook, which kept none
    _check(data)
    failures = Counter(failure_of(s) for s in samples if has_failed(s))
    if failures:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(failures.items()))
        logger.warning("%d of %d trajectories failed (%s)", failures.total(), len(samples), kinds)
    traces.keep(host, [_trained(*one) for one in zip(trajectories, advantages, by_row, strict=True)])
    return data


def row_counts(args: Any, samples: list[Any]) -> dict[str, int]:
    """How many rows ``custom_convert`` makes of these samples, and how many of those are padding."""
    host = HostArgs.of(args)
    rows = [len(_rows(sample, Record.of(sample))) for sample in samples]
    padding = sum(_missing_rows(host, sum(rows[first:last])) for first, last in _steps(host, len(samples)))
    return {"rows": sum(rows) + padding, "padding_rows": padding}


# --- advantages ---------------------------------------------------------------------------------------------------


def group_advantages(
    rewards: Sequence[float | None], groups: Sequence[Hashable], divide_by_std: bool = False
) -> list[float]:
    """Each reward minus the mean of its group, perhaps divided by (unbiased standard deviation + 1e-6).

    Source: GRPO, arXiv 2402.03300, section 4.1, without the deviation as MemAgent trains it (arXiv 2507.02259,
    equation 1). Statistics are over trajectories, never over turns, and groups are found by key, not by position. A
    trajectory that failed for reasons outside the policy (None) is in no mean and gets 0.

    Example, one group without deviation: [1, 0, None, 1] -> mean 2/3 -> [1/3, -2/3, 0, 1/3].
    """
    members: dict[Hashable, list[float]] = defaultdict(list)
    for reward, group in zip(rewards, groups, strict=True):
        if reward is not None:
            members[group].append(reward)
    means = {group: math.fsum(values) / len(values) for group, values in members.items()}
    scales = dict.fromkeys(members, 1.0)
    for group, values in members.items():
        if divide_by_std and len(values) > 1:
            squares = math.fsum((value - means[group]) ** 2 for value in values)
            scales[group] = math.sqrt(squares / (len(values) - 1)) + 1e-6
    return [
        0.0 if reward is None else (reward - means[group]) / scales[group]
        for reward, group in zip(rewards, groups, strict=True)
    ]


def turn_advantages(
    outcomes: Sequence[float], states: Sequence[Sequence[float] | None], groups: Sequence[Hashable], alpha: float,
    state_weight: float = 1.0,
) -> list[list[float] | None]:
    """The advantage of every turn: ``alpha * outcome + (1 - alpha) * state_weight * state``.

    The state advantage is a turn's reward minus the mean over the group's trajectories at the same turn. None stays
    None: a trajectory whose turns earn nothing is trained on its outcome alone, and is in no mean.

    Source: ReMemR1, arXiv 2509.23040, section 3.3, with the weight 1; its released code counts each state reward twice
    (verl/trainer/ppo/ray_trainer.py), so its weight is 2. Example, alpha 0.8, one group::

        outcome 1, state [2, 1]    -> outcome advantage  0.5, state [0.5,  0.0] -> [ 0.5,  0.4]
        outcome 0, state [1, 1]    ->                   -0.5        [-0.5, 0.0] -> [-0.5, -0.4]
    """
    turns = [(i, t, reward) for i, rewards in enumerate(states) for t, reward in enumerate(rewards or ())]
    advantages = group_advantages([reward for _, _, reward in turns], [(groups[i], t) for i, t, _ in turns])
    mixed: list[list[float]] = [[] for _ in states]
    for (i, _, _), state in zip(turns, advantages, strict=True):
        mixed[i].append(alpha * outcomes[i] + (1 - alpha) * state_weight * state)
    return [None if rewards is None else own for rewards, own in zip(states, mixed, strict=True)]


def _unroll(host: HostArgs, sample: Any, rollout_id: int) -> _Trajectory:
    group = ("group", sample.group_index) if sample.group_index is not None else ("alone", rollout_id)
    record, reward = Record.of(sample), reward_of(sample, host.reward_key)
    rows = _rows(sample, record)
    if lost(sample) or sample.remove_sample:
        return _Trajectory(sample, rollout_id, group, None, float(reward or 0.0), rows, None)
    if reward is None:
        raise ConvertError(f"sample {sample.index} ({sample.status.value}) reached training without a reward")
    states = record.state_totals if record else None
    return _Trajectory(sample, rollout_id, group, float(reward), float(reward), rows, states)


def _rows(sample: Any, record: Record | None) -> list[_Row]:
    rows = [] if lost(sample) else _turn_rows(sample, record)
    if sample.remove_sample:
        rows = [replace(row, loss_mask=[0] * row.response_length) for row in rows]
    return rows or [_placeholder()]


def _turn_rows(sample: Any, record: Record | None) -> list[_Row]:
    if record is None:  # of another generate hook: its own tokens are its one turn
        mask = sample.loss_mask if sample.loss_mask is not None else [1] * sample.response_length
        cut = int(truncated(sample))
        return [_Row(list(sample.tokens), sample.response_length, list(mask), sample.rollout_log_probs, cut)]
    return [
        _Row(t.tokens, t.response_length, [1] * t.response_length, t.log_probs, int(t.truncated), n, t.weight)
        for n, t in enumerate(record.turns)
    ]


def _placeholder() -> _Row:
    return _Row(list(PLACEHOLDER.tokens), PLACEHOLDER.response_length, [0], list(PLACEHOLDER.log_probs), 0)


def _rollout_ids(samples: list[Any]) -> list[int]:
    """The host's ``rollout_id``, else ``index``, else a fresh number; unique per sample."""
    given = [s.rollout_id if s.rollout_id is not None else s.index for s in samples]
    fresh = iter(set(range(2 * len(samples))) - set(given))
    ids = [i if i is not None else next(fresh) for i in given]
    if len(set(ids)) < len(ids):
        repeated = next(i for n, i in enumerate(ids) if i in ids[:n])
        raise ConvertError(f"two samples have the rollout id {repeated}; each needs one of its own")
    return ids


def _row_advantages(trajectory: _Trajectory, advantage: float, by_turn: Sequence[float] | None) -> list[float]:
    """The advantage of each row: its turn's or the trajectory's, times the turn's weight."""
    return [row.weight * (advantage if by_turn is None else by_turn[row.turn]) for row in trajectory.rows]


def _trained(trajectory: _Trajectory, advantage: float, by_row: Sequence[float]) -> traces.Trained:
    if trajectory.reward is None:
        return traces.Trained(trajectory.sample)
    return traces.Trained(trajectory.sample, advantage, by_row)


def _append(data: dict[str, list[Any]], row: _Row, of: _Trajectory, mask_sum: int, advantage: float) -> None:
    values = (row.tokens, row.response_length, advantage, of.raw_reward, row.truncated, of.sample.index,
              row.loss_mask, of.rollout_id, mask_sum, row.log_probs)
    for name, value in zip(COLUMNS, values, strict=True):
        data[name].append(value)


def _steps(host: HostArgs, trajectories: int) -> list[tuple[int, int]]:
    """Trajectory ranges of the optimizer steps; a remainder forms a last range of its own."""
    size = host.step_trajectories or max(trajectories, 1)
    return [(i, min(i + size, trajectories)) for i in range(0, trajectories, size)]


def _missing_rows(host: HostArgs, rows: int) -> int:
    """Masked rows that a step needs until the host's scheduler can divide it."""
    return -rows % host.row_multiple


def _check(data: dict[str, list[Any]]) -> None:
    """Check what another generate hook's samples may get wrong."""
    kept = data.get("rollout_log_probs", data["loss_masks"])
    columns = (data[name] for name in ("rollout_ids", "tokens", "response_lengths", "loss_masks", "rewards"))
    for (number, tokens, length, mask, advantage), log_probs in zip(zip(*columns, strict=True), kept, strict=True):
        if not len(mask) == length <= len(tokens) > 0 or log_probs is None or len(log_probs) != length:
            raise ConvertError(f"sample {number}: {len(tokens)} tokens, a response of {length}, a mask of {len(mask)} "
                               f"and {len(log_probs or ())} log-probs do not fit each other")
        if not math.isfinite(advantage):
            raise ConvertError(f"sample {number} has the advantage {advantage}; a reward of its group is not finite")
