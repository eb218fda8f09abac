"""Training rows: what a converter hook hands to the trainer, one row per trained turn.

A row is one sequence ``tokens = prompt + response``; ``loss_mask`` and ``log_probs`` cover the response only, so both
have ``response_length`` entries. Rows of one trajectory share ``rollout_id``, and ``rollout_mask_sum`` is the number
of unmasked response tokens over all rows of that trajectory: dividing by it makes a trajectory weigh 1 however many
turns it has. They follow each other, and an optimizer step always holds whole trajectories.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
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


_LARGEST = 2**63
"""No whole number that a tensor holds is larger."""
_KEYS = (
    "tokens",
    "response_lengths",
    "loss_masks",
    "rollout_log_probs",
    "rewards",
    "rollout_ids",
    "rollout_mask_sums",
)


def rows_from_train_data(train_data: Mapping[str, Any], vocabulary: int = 0) -> list[TrainRow]:
    """Rows of a converter hook's dict; ``rewards`` are already normalised advantages. Other keys are ignored.

    ``vocabulary``: how many tokens the model knows; 0: unknown.
    """
    missing = [key for key in _KEYS if key not in train_data]
    if missing:
        raise TrainDataError(f"train data lacks the key {missing[0]}; the converter must return {', '.join(_KEYS)}")
    for key in _KEYS:
        if not (isinstance(column := train_data[key], Sized) and isinstance(column, Iterable)):
            raise TrainDataError(f"train data: {key} is {_shown(column)}, expected a list with an entry for each row")
    count = len(train_data["tokens"])
    for key in _KEYS:
        if len(train_data[key]) != count:
            raise TrainDataError(f"train data: {key} has {len(train_data[key])} entries, tokens has {count}")
    columns = zip(*(train_data[key] for key in _KEYS), strict=True)
    rows = [_checked(index, *values) for index, values in enumerate(columns)]
    for index, row in enumerate(rows):
        if vocabulary and max(row.tokens) >= vocabulary:
            raise TrainDataError(
                f"train data row {index} (sample {row.rollout_id}): token {max(row.tokens)} is none of the model's "
                f"{vocabulary}; the engine serves another model"
            )
    _check_together(rows)
    return rows


def _check_together(rows: Sequence[TrainRow]) -> None:
    ended: set[int] = set()
    for index, (row, following) in enumerate(pairwise(rows), 1):
        if row.rollout_id != following.rollout_id:
            ended.add(row.rollout_id)
            if following.rollout_id in ended:
                where = f"train data row {index} (sample {following.rollout_id})"
                raise TrainDataError(f"{where}: other samples' rows are between its own; they must follow each other")


def _listed(where: str, key: str, values: Any, kind: Any, said: str) -> list[Any]:
    if not isinstance(values, Iterable) or isinstance(values, Mapping):
        raise TrainDataError(f"{where}: {key} is {_shown(values)}, expected {said}")
    listed = list(values)
    if not set(map(type, listed)) <= {int, float if kind is Real else int}:  # those of nearly all rows, told quickly
        strange = next((value for value in listed if not isinstance(value, kind)), None)
        if strange is not None or None in listed:
            raise TrainDataError(f"{where}: {key} holds {_shown(strange)}, expected {said}")
    if listed and kind is Integral and not -_LARGEST < min(listed) <= max(listed) < _LARGEST:
        raise TrainDataError(f"{where}: {key} holds {_shown(max(listed, key=abs))}, expected {said}")
    return listed


def _number(where: str, key: str, value: Any, kind: Any) -> Any:
    if not isinstance(value, kind) or not math.isfinite(_float(value)) or (
        kind is Integral and not -_LARGEST < value < _LARGEST
    ):
        said = "a whole number" if kind is Integral else "a finite number"
        raise TrainDataError(f"{where}: {key} is {_shown(value)}, expected {said}")
    return value


def _float(value: Any) -> float:
    """Infinite where a whole number is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _shown(value: Any) -> str:
    """Python writes no number of thousands of digits."""
    large = isinstance(value, int) and not -_LARGEST < value < _LARGEST
    return f"a number of {value.bit_length()} bits" if large else f"{value!r:.40}"


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
    where = f"train data row {index}"
    where += f" (sample {int(_number(where, 'rollout_ids', rollout_id, Integral))})"
    row = TrainRow(
        tokens=_listed(where, "tokens", tokens, Integral, "token ids"),
        response_length=int(_number(where, "response_lengths", response_length, Integral)),
        loss_mask=[int(m) for m in _listed(where, "loss_masks", loss_mask, Integral, "zeros and ones")],
        log_probs=[_float(p) for p in _listed(where, "rollout_log_probs", log_probs, Real, "finite numbers")],
        advantage=float(_number(where, "rewards", advantage, Real)),
        rollout_id=int(rollout_id),
        rollout_mask_sum=float(_number(where, "rollout_mask_sums", rollout_mask_sum, Real)),
    )
    if problem := _problem_of(row):
        raise TrainDataError(f"{where}: {problem}")
    return row


def _problem_of(row: TrainRow) -> str:
    if not 0 <= row.response_length < len(row.tokens):
        lengths = f"response_length {row.response_length} of {len(row.tokens)} tokens"
        return f"{lengths}; a row needs at least one prompt token"
    for key, values in (("loss_masks", row.loss_mask), ("rollout_log_probs", row.log_probs)):
        if len(values) != row.response_length:
            return f"{key} has {len(values)} entries, response_length is {row.response_length}"
    if not set(row.loss_mask) <= {0, 1}:
        return "loss_masks holds another number than 0 and 1"
    if not all(map(math.isfinite, row.log_probs)):
        return "rollout_log_probs holds a number that is not finite"
    if min(row.tokens) < 0:
        return "tokens holds a number below 0"
    if row.rollout_mask_sum < 0 or (row.rollout_mask_sum == 0 and any(row.loss_mask)):
        return f"rollout_mask_sum {row.rollout_mask_sum:g}, but {sum(row.loss_mask)} tokens are to be trained"
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
