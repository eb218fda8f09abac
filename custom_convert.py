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

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from .agents import agent_settings, outcome_weight
from .agents.records import Outcome, StopReason, Turn, TurnKind
from .hooks import rewards, traces
from .hooks.host import HostArgs
from .hooks.sample import PLACEHOLDER, Record, lost, require_survivors, reward_of

COLUMNS = ("tokens", "response_lengths", "rewards", "raw_reward", "truncated", "sample_indices", "loss_masks",
           "rollout_ids", "rollout_mask_sums", "rollout_log_probs")


@dataclass(frozen=True, slots=True)
class _Trajectory:
    sample: Any
    rollout_id: int
    group: Hashable
    reward: float | None  # None: failed, aborted or not to be trained, so outside the group's statistics
    raw_reward: float
    turns: Sequence[Turn]  # a row each
    masks: list[list[int]]
    turn_rewards: list[float] | None  # what its turns earned by themselves


def custom_convert(args: Any, samples: list[Any]) -> dict[str, list[Any]]:
    """The host's training data for one rollout. ``rewards`` are the normalised advantages.

    Raises:
        AllFailed: there is nothing to learn from.
    """
    host = HostArgs(args)
    require_survivors(samples, "a rollout")
    rewards.apply(host, samples, None)
    trajectories = [_unroll(host, sample) for sample in samples]
    groups = [t.group for t in trajectories]
    advantages = group_advantages([t.reward for t in trajectories], groups, host.config.adv_std)
    by_turn = turn_advantages(advantages, [t.turn_rewards for t in trajectories], groups, outcome_weight(host.config),
                              getattr(agent_settings(host.config), "state_weight", 1.0))
    by_row = [
        [turn.weight * (outcome if own is None else own[n]) for n, turn in enumerate(trajectory.turns)]
        for trajectory, outcome, own in zip(trajectories, advantages, by_turn, strict=True)
    ]
    data: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for first, last in _steps(host, len(trajectories)):
        step = range(first, last)
        for n in step:
            _append(data, trajectories[n], trajectories[n].turns, trajectories[n].masks, by_row[n])
        # Padding belongs to the step's last trajectory and changes nothing in a per-trajectory loss; under a global
        # token mean every host counts each row as one token, like any fully masked row.
        missing = -sum(len(trajectories[n].turns) for n in step) % host.row_multiple
        _append(data, trajectories[last - 1], [PLACEHOLDER] * missing, [[0]] * missing, [0.0] * missing)
    if not any(data["rollout_log_probs"]):
        del data["rollout_log_probs"]  # only samples of another generate hook, which kept none
    traces.keep(host, [
        (t.sample, None, ()) if t.reward is None else (t.sample, outcome, by_turn)
        for t, outcome, by_turn in zip(trajectories, advantages, by_row, strict=True)
    ])
    return data


def row_counts(args: Any, samples: list[Any]) -> dict[str, int]:
    """How many rows ``custom_convert`` makes of these samples, and how many of those are padding."""
    host = HostArgs(args)
    rows = [len(_turns(sample, Record.of(sample))) for sample in samples]
    padding = sum(-sum(rows[first:last]) % host.row_multiple for first, last in _steps(host, len(samples)))
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
    means = {group: fmean(values) for group, values in members.items()}
    scales = {group: stdev(values) + 1e-6 for group, values in members.items() if divide_by_std and len(values) > 1}
    return [
        0.0 if reward is None else (reward - means[group]) / scales.get(group, 1.0)
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


# --- rows -----------------------------------------------------------------------------------------------------------


def _unroll(host: HostArgs, sample: Any) -> _Trajectory:
    rollout_id = sample.index if sample.rollout_id is None else sample.rollout_id
    group = ("group", sample.group_index) if sample.group_index is not None else ("alone", rollout_id)
    record, reward = Record.of(sample), reward_of(sample, host.reward_key)
    turns = _turns(sample, record)
    trained = not lost(sample) and not sample.remove_sample
    masks = [[int(trained)] * len(turn.response_ids) for turn in turns]
    if trained and record is None and sample.loss_mask is not None:
        masks = [list(sample.loss_mask)]
    assert reward is not None or not trained, f"sample {sample.index} has no reward"
    raw = float(reward or 0.0)
    turn_rewards = record.state_totals if trained and record else None
    return _Trajectory(sample, rollout_id, group, raw if trained else None, raw, turns, masks, turn_rewards)


def _turns(sample: Any, record: Record | None) -> Sequence[Turn]:
    """A row each. A sample of another generate hook is one turn, of its own tokens."""
    if lost(sample):
        return [PLACEHOLDER]
    if record is not None:
        return record.turns
    stop = StopReason.LENGTH if sample.status.value == Outcome.TRUNCATED else StopReason.STOP
    split = len(sample.tokens) - sample.response_length
    return [Turn(TurnKind.FINAL, list(sample.tokens), split, sample.rollout_log_probs, stop)]


def _append(
    data: dict[str, list[Any]], of: _Trajectory, turns: Sequence[Turn], masks: Sequence[list[int]],
    advantages: Sequence[float],
) -> None:
    """Add rows of a trajectory; ``COLUMNS`` has the order of the values."""
    mask_sum = sum(map(sum, of.masks))
    for turn, mask, advantage in zip(turns, masks, advantages, strict=True):
        values = (turn.tokens, len(turn.response_ids), advantage, of.raw_reward, int(turn.stop is StopReason.LENGTH),
                  of.sample.index, mask, of.rollout_id, mask_sum, turn.log_probs)
        for name, value in zip(COLUMNS, values, strict=True):
            data[name].append(value)


def _steps(host: HostArgs, trajectories: int) -> list[tuple[int, int]]:
    """Trajectory ranges of the optimizer steps; a remainder forms a last range of its own."""
    size = host.step_trajectories or max(trajectories, 1)
    return [(i, min(i + size, trajectories)) for i in range(0, trajectories, size)]
