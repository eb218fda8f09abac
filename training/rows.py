"""Training rows: what a converter hook hands to the trainer, one row per trained turn.

A row is one sequence ``tokens = prompt + response``; ``loss_mask`` and ``log_probs`` cover the response only, so both
have ``response_length`` entries. Rows of one trajectory share ``rollout_id``, and ``rollout_mask_sum`` is the number
of unmasked response tokens over all rows of that trajectory: dividing by it makes a trajectory weigh 1 however many
turns it has. An optimizer step always holds whole trajectories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..system.errors import MemAgentError


class TrainDataError(MemAgentError):
    """The converter's dict cannot be trained on: the message names the key and the row."""


@dataclass(frozen=True, slots=True)
class TrainRow:
    """One sequence to train on; ``log_probs`` are the engine's, taken while sampling."""

    tokens: list[int]
    response_length: int
    loss_mask: list[int]
    log_probs: list[float]
    advantage: float
    rollout_id: int
    rollout_mask_sum: float

    @property
    def prompt_length(self) -> int:
        return len(self.tokens) - self.response_length

    @property
    def inputs(self) -> list[int]:
        """What a forward pass reads: the last token predicts nothing, but nothing cannot be read."""
        return self.tokens[:-1] or self.tokens

    @property
    def response(self) -> list[int]:
        return self.tokens[self.prompt_length :]


_KEYS = (
    "tokens",
    "response_lengths",
    "loss_masks",
    "rollout_log_probs",
    "rewards",
    "rollout_ids",
    "rollout_mask_sums",
)


def rows_from_train_data(train_data: Mapping[str, Any]) -> list[TrainRow]:
    """Rows of a converter hook's dict; ``rewards`` are already normalised advantages. Other keys are ignored."""
    missing = [key for key in _KEYS if key not in train_data]
    if missing:
        raise TrainDataError(f"train data lacks the key {missing[0]}; the converter must return {', '.join(_KEYS)}")
    count = len(train_data["tokens"])
    for key in _KEYS:
        if len(train_data[key]) != count:
            raise TrainDataError(f"train data: {key} has {len(train_data[key])} entries, tokens has {count}")
    columns = zip(*(train_data[key] for key in _KEYS), strict=True)
    return [_checked(index, *values) for index, values in enumerate(columns)]


def _checked(
    index: int,
    tokens: Sequence[int],
    response_length: int,
    loss_mask: Sequence[int],
    log_probs: Sequence[float],
    advantage: float,
    rollout_id: int,
    rollout_mask_sum: float,
) -> TrainRow:
    if not 0 <= response_length < len(tokens):
        raise TrainDataError(
            f"train data row {index}: response_length {response_length} of {len(tokens)} tokens; "
            "a row needs at least one prompt token"
        )
    for key, values in (("loss_masks", loss_mask), ("rollout_log_probs", log_probs)):
        if len(values) != response_length:
            raise TrainDataError(
                f"train data row {index}: {key} has {len(values)} entries, response_length is {response_length}"
            )
    return TrainRow(
        tokens=list(tokens),
        response_length=int(response_length),
        loss_mask=[int(m) for m in loss_mask],
        log_probs=[float(p) for p in log_probs],
        advantage=float(advantage),
        rollout_id=int(rollout_id),
        rollout_mask_sum=float(rollout_mask_sum),
    )


def optimizer_steps(rows: Sequence[TrainRow], step_trajectories: int) -> list[list[TrainRow]]:
    """The rows of each optimizer step: ``step_trajectories`` whole trajectories, in order of first occurrence."""
    by_rollout: dict[int, list[TrainRow]] = {}
    for row in rows:
        by_rollout.setdefault(row.rollout_id, []).append(row)
    trajectories = list(by_rollout.values())
    if not trajectories or len(trajectories) % step_trajectories:
        raise TrainDataError(
            f"{len(trajectories)} trajectories do not divide into steps of {step_trajectories}; "
            "a failed trajectory must still give one fully masked row"
        )
    starts = range(0, len(trajectories), step_trajectories)
    return [[row for t in trajectories[i : i + step_trajectories] for row in t] for i in starts]
