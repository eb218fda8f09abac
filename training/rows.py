"""Training rows: what a converter hook hands to the trainer, one row per trained turn.

A row is one sequence ``tokens = prompt + response``; ``loss_mask`` and ``log_probs`` cover the response only, so both
have ``response_length`` entries. Rows of one trajectory share ``rollout_id``, and ``rollout_mask_sum`` is the number
of unmasked response tokens over all rows of that trajectory: dividing by it makes a trajectory weigh 1 however many
turns it has. They follow each other, and an optimizer step always holds whole trajectories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

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


def rows_from_train_data(train_data: Mapping[str, Any]) -> list[TrainRow]:
    """Rows of a converter hook's dict; ``rewards`` are already normalised advantages. Other keys are ignored."""
    return [TrainRow(*values) for values in zip(*(train_data[key] for key in _KEYS), strict=True)]


def optimizer_steps(rows: Sequence[TrainRow], step_trajectories: int) -> list[list[TrainRow]]:
    """The rows of each optimizer step: ``step_trajectories`` whole trajectories, in their order."""
    trajectories = [list(turns) for _, turns in groupby(rows, lambda row: row.rollout_id)]
    assert trajectories and len(trajectories) % step_trajectories == 0, "a failed trajectory still gives a masked row"
    starts = range(0, len(trajectories), step_trajectories)
    return [[row for t in trajectories[i : i + step_trajectories] for row in t] for i in starts]
