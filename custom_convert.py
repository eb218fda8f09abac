"""The converter hook: trajectories to training rows, one row per turn.

    --custom-convert-samples-to-train-data-path mem_agent.custom_convert.custom_convert

Invariants:
- every trajectory given has at least one row: a failed one becomes one fully masked placeholder row, so a step never
  loses a trajectory (``--global-batch-size`` counts trajectories, by ``rollout_ids``);
- all rows of a trajectory carry the same ``rollout_ids`` entry and the same ``rollout_mask_sums`` (trained tokens of
  the whole trajectory): the host's loss then weighs each trajectory once, however many turns it has;
- they carry the same advantage, undivided by the number of turns, unless the turns have ``state_rewards``: those mix
  in the turn's own (``advantages.turn_advantages``, ``MEM_ALPHA``, ``MEM_STATE_WEIGHT``), and a turn may have a weight
  (``MEM_TURN_WEIGHT``);
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
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .hooks import batch_reward, keep_trajectories, open_groups, survivors
from .hooks.host import HostArgs
from .hooks.metrics import failure_of
from .hooks.record import PLACEHOLDER, Record
from .hooks.sample import has_failed, lost, reward_of, truncated
from .rewards.advantages import group_advantages, turn_advantages
from .system.errors import MemAgentError

logger = logging.getLogger(__name__)


class ConvertError(MemAgentError):
    """A sample, of another hook, that no training row can be made of."""


@dataclass(frozen=True, slots=True)
class _Row:
    tokens: list[int]
    response_length: int
    loss_mask: list[int]
    log_probs: list[float] | None
    truncated: int
    turn: int = 0
    weight: float = 1.0
    """Factor of its advantage."""


@dataclass(frozen=True, slots=True)
class _Unrolled:
    """One trajectory: its id, the group it is compared in, its reward (None: outside the statistics), its rows, and
    what its turns earned by themselves (None: nothing)."""

    rollout_id: int
    group: Any
    index: int | None
    reward: float | None
    rows: list[_Row]
    state_rewards: list[float] | None

    @property
    def mask_sum(self) -> int:
        return sum(sum(row.loss_mask) for row in self.rows)


def custom_convert(args: Any, samples: list[Any]) -> dict[str, list[Any]]:
    """The host's training data for one rollout. ``rewards`` are the normalised advantages.

    Raises:
        AllFailed: there is nothing to learn from.
        ConvertError: of a sample no training row can be made.
    """
    host = HostArgs.of(args)
    config = host.config
    survivors.require(samples)
    batch_reward.apply(host, samples, None)
    open_groups.take(host, samples)
    ids = _rollout_ids(samples)
    trajectories = [_unroll(host, s, i) for s, i in zip(samples, ids, strict=True)]
    groups = [t.group for t in trajectories]
    advantages = group_advantages([t.reward for t in trajectories], groups, divide_by_std=config.adv_std)
    states = [t.state_rewards for t in trajectories]
    by_turn = turn_advantages(advantages, states, groups, config.mem_alpha, config.mem_state_weight)
    data: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for first, last in _steps(host, len(trajectories)):
        for trajectory, advantage, turns in zip(
            trajectories[first:last], advantages[first:last], by_turn[first:last], strict=True
        ):
            mask_sum = trajectory.mask_sum
            for row in trajectory.rows:
                own = advantage if turns is None else turns[row.turn]
                _append(data, row, trajectory, mask_sum, row.weight * own)
        _pad(host, data, trajectories[last - 1], sum(len(t.rows) for t in trajectories[first:last]))
    if all(log_probs is None for log_probs in data["rollout_log_probs"]):
        del data["rollout_log_probs"]  # only samples of another generate hook, which kept none
    _check(data, trajectories)
    _report(samples)
    given = zip(samples, advantages, by_turn, strict=True)
    keep_trajectories.keep(host, [_trained(host, *one) for one in given])
    return data


def _trained(
    host: HostArgs, sample: Any, advantage: float, by_turn: Sequence[float] | None
) -> keep_trajectories.Trained:
    """What was trained of a trajectory, turn by turn."""
    record = Record.of(sample)
    turns = record.turns if record is not None else ()
    if lost(sample) or sample.remove_sample:
        return keep_trajectories.Trained(sample, None, [None] * len(turns))
    each = by_turn or [advantage] * len(turns)
    own = [
        turn.weight * one if host.config.train_turns in ("all", turn.kind) else None
        for turn, one in zip(turns, each, strict=True)
    ]
    return keep_trajectories.Trained(sample, advantage, own)


def row_counts(args: Any, samples: list[Any]) -> dict[str, int]:
    """How many rows ``custom_convert`` makes of these samples, and how many of those are padding."""
    host = HostArgs.of(args)
    rows = [len(_rows(host.config.train_turns, sample)) for sample in samples]
    padding = sum(_missing_rows(host, sum(rows[first:last])) for first, last in _steps(host, len(samples)))
    return {"rows": sum(rows) + padding, "padding_rows": padding}


_COLUMNS = (
    "tokens", "response_lengths", "rewards", "raw_reward", "truncated", "sample_indices", "loss_masks",
    "rollout_ids", "rollout_mask_sums", "rollout_log_probs",
)


def _append(
    data: dict[str, list[Any]], row: _Row, trajectory: _Unrolled, mask_sum: int, advantage: float
) -> None:
    values = (
        row.tokens, row.response_length, advantage, trajectory.reward or 0.0, row.truncated, trajectory.index,
        row.loss_mask, trajectory.rollout_id, mask_sum, row.log_probs,
    )
    for name, value in zip(_COLUMNS, values, strict=True):
        data[name].append(value)


# --- one trajectory -----------------------------------------------------------------------------------------------


def _unroll(host: HostArgs, sample: Any, rollout_id: int) -> _Unrolled:
    group = ("group", sample.group_index) if sample.group_index is not None else ("alone", rollout_id)
    record = Record.of(sample)
    reward = None if lost(sample) else _given_reward(host, sample)
    states = None if lost(sample) or record is None else record.state_totals
    return _Unrolled(rollout_id, group, sample.index, reward, _rows(host.config.train_turns, sample), states)


def _rows(train_turns: str, sample: Any) -> list[_Row]:
    rows = [] if lost(sample) else _turn_rows(sample, train_turns)
    if sample.remove_sample:
        rows = [_masked(row) for row in rows]
    return rows or [_placeholder()]


def _turn_rows(sample: Any, train_turns: str) -> list[_Row]:
    record = Record.of(sample)
    if record is None:
        # A sample of another generate hook: its own tokens are its one turn.
        mask = sample.loss_mask if sample.loss_mask is not None else [1] * sample.response_length
        cut = int(truncated(sample))
        return [_Row(list(sample.tokens), sample.response_length, list(mask), sample.rollout_log_probs, cut)]
    return [
        _Row(t.tokens, t.response_length, [1] * t.response_length, t.log_probs, int(t.truncated), n, t.weight)
        for n, t in enumerate(record.turns)
        if train_turns in ("all", t.kind)
    ]


def _masked(row: _Row) -> _Row:
    return replace(row, loss_mask=[0] * row.response_length)


def _placeholder() -> _Row:
    return _Row(list(PLACEHOLDER.tokens), PLACEHOLDER.response_length, [0], list(PLACEHOLDER.log_probs), 0)


def _given_reward(host: HostArgs, sample: Any) -> float:
    reward = reward_of(sample, host.reward_key)
    if reward is None:
        raise ConvertError(f"sample {sample.index} ({sample.status.value}) reached training without a reward")
    try:
        return float(reward)
    except (TypeError, ValueError, OverflowError):
        told = f"sample {sample.index} has a reward of the type {type(reward).__name__}"
        raise ConvertError(f"{told}; expected a number that a float holds") from None


def _rollout_ids(samples: list[Any]) -> list[int]:
    """The host's ``rollout_id``, else ``index``, else a fresh number; unique per sample."""
    given = [s.rollout_id if s.rollout_id is not None else s.index for s in samples]
    fresh = iter(set(range(2 * len(samples))) - set(given))
    ids = [i if i is not None else next(fresh) for i in given]
    if len(set(ids)) < len(ids):
        repeated = next(i for n, i in enumerate(ids) if i in ids[:n])
        raise ConvertError(f"two samples have the rollout id {repeated}; each needs one of its own")
    return ids


# --- steps and padding --------------------------------------------------------------------------------------------


def _steps(host: HostArgs, trajectories: int) -> list[tuple[int, int]]:
    """Trajectory ranges of the optimizer steps; a remainder forms a last range of its own."""
    size = host.step_trajectories or max(trajectories, 1)
    return [(i, min(i + size, trajectories)) for i in range(0, trajectories, size)]


def _pad(host: HostArgs, data: dict[str, list[Any]], trajectory: _Unrolled, rows: int) -> None:
    """Add masked rows to the step just written until its row count is a multiple the scheduler can divide.

    They belong to the step's last trajectory and change nothing in a per-trajectory loss; under a global token mean
    every host counts each as one token, like any fully masked row.
    """
    for _ in range(_missing_rows(host, rows)):
        _append(data, _placeholder(), trajectory, trajectory.mask_sum, 0.0)


def _missing_rows(host: HostArgs, rows: int) -> int:
    return -rows % host.row_multiple


# --- checks and report --------------------------------------------------------------------------------------------


def _check(data: dict[str, list[Any]], trajectories: list[_Unrolled]) -> None:
    assert len({len(column) for column in data.values()}) == 1, {k: len(v) for k, v in data.items()}
    assert set(data["rollout_ids"]) == {t.rollout_id for t in trajectories}, "a trajectory was lost"
    columns = (data[name] for name in ("rollout_ids", "tokens", "response_lengths", "loss_masks", "rewards"))
    kept = data.get("rollout_log_probs", data["loss_masks"])
    for (number, tokens, length, mask, advantage), log_probs in zip(zip(*columns, strict=True), kept, strict=True):
        if not len(mask) == length <= len(tokens) > 0:
            lengths = f"{len(tokens)} tokens, a response of {length} and a mask of {len(mask)}"
            raise ConvertError(f"sample {number} has {lengths}; these must fit each other")
        if not math.isfinite(advantage):
            raise ConvertError(f"sample {number} has the advantage {advantage}; a reward of its group is not finite")
        if log_probs is None or len(log_probs) != length:
            raise ConvertError(f"sample {number}: its log-probs do not match its response of {length} tokens")


def _report(samples: Sequence[Any]) -> None:
    failures = Counter(failure_of(s) for s in samples if has_failed(s))
    if failures:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(failures.items()))
        logger.warning("%d of %d trajectories failed (%s)", failures.total(), len(samples), kinds)
