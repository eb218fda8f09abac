"""Training rows: what a converter hook hands to the trainer, one row per trained turn.

A row is one sequence ``tokens = prompt + response``; ``loss_mask`` and ``log_probs`` cover the response only, so both
have ``response_length`` entries. Rows of one trajectory share ``rollout_id``, and ``rollout_mask_sum`` is the number
of unmasked response tokens over all rows of that trajectory: dividing by it makes a trajectory weigh 1 however many
turns it has. They follow each other, and an optimizer step always holds whole trajectories.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ..system.errors import MemAgentError


class TrainDataError(MemAgentError):
    """The converter's dict cannot be trained on: the message names the key and the row."""


_KEYS = ("tokens", "response_lengths", "loss_masks", "rollout_log_probs", "rewards", "rollout_ids",
         "rollout_mask_sums")
"""Of the converter's dict, in the order of TrainRow's fields."""


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


def rows_from_train_data(train_data: Mapping[str, Any], vocabulary: int = 0) -> list[TrainRow]:
    """Rows of a converter hook's dict; ``rewards`` are already normalised advantages. Other keys are ignored.

    ``vocabulary``: how many tokens the model knows; 0: unknown.

    Raises:
        TrainDataError: a key is missing, or a row cannot be trained on.
    """
    try:
        columns = [train_data[key] for key in _KEYS]
    except KeyError as error:
        raise TrainDataError(f"train data lacks {error}; the converter must return {', '.join(_KEYS)}") from None
    rows = [TrainRow(*values) for values in zip(*columns, strict=True)]
    for index, row in enumerate(rows):
        if problem := _problem_of(row, vocabulary):
            raise TrainDataError(f"train data row {index} (sample {row.rollout_id}): {problem}")
    order = [rollout_id for rollout_id, _ in groupby(row.rollout_id for row in rows)]
    assert len(order) == len(set(order)), "rows of a trajectory must follow each other"
    return rows


def _problem_of(row: TrainRow, vocabulary: int) -> str:
    if not 0 <= row.response_length < len(row.tokens):
        lengths = f"response_length {row.response_length} of {len(row.tokens)} tokens"
        return f"{lengths}; a row needs at least one prompt token"
    for key, values in (("loss_masks", row.loss_mask), ("rollout_log_probs", row.log_probs)):
        if len(values) != row.response_length:
            return f"{key} has {len(values)} entries, response_length is {row.response_length}"
    if not all(map(math.isfinite, (row.advantage, *row.log_probs))):
        return "its reward or a log-prob is not finite"
    if row.rollout_mask_sum < 0 or (row.rollout_mask_sum == 0 and any(row.loss_mask)):
        return f"rollout_mask_sum {row.rollout_mask_sum:g}, but {sum(row.loss_mask)} tokens are to be trained"
    if vocabulary and max(row.tokens) >= vocabulary:
        return f"token {max(row.tokens)} is none of the model's {vocabulary}; the engine serves another model"
    return ""


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
