"""What the trainer accepts from a converter hook, and how rows become optimizer steps."""

import math

import pytest

from mem_agent.training.rows import TrainDataError, TrainRow, optimizer_steps, rows_from_train_data


def train_data() -> dict:
    return {
        "tokens": [[1, 2, 3], [1, 4, 5, 6], [7, 8]],
        "response_lengths": [1, 2, 1],
        "rewards": [0.5, 0.5, -0.5],
        "loss_masks": [[1], [1, 0], [1]],
        "rollout_ids": [10, 10, 11],
        "rollout_mask_sums": [2, 2, 1],
        "rollout_log_probs": [[-0.1], [-0.2, -0.3], [-0.4]],
        "raw_reward": [1.0, 1.0, 0.0],
    }


HUGE = 10**5000
"""No float holds it, and Python does not write it."""


def rows_of(*rollout_ids: int) -> list[TrainRow]:
    return [TrainRow([1, 2], 1, [1], [0.0], 0.0, rollout_id, 1.0) for rollout_id in rollout_ids]


def test_a_converters_dict_becomes_rows_in_order():
    rows = rows_from_train_data(train_data())
    assert rows[1] == TrainRow([1, 4, 5, 6], 2, [1, 0], [-0.2, -0.3], 0.5, 10, 2.0)
    assert (rows[1].prompt_length, rows[1].response) == (2, [5, 6])
    assert [row.rollout_id for row in rows] == [10, 10, 11]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rollout_ids", None, "lacks the key rollout_ids"),
        ("rollout_log_probs", None, "lacks the key rollout_log_probs"),
        ("rollout_ids", [10, 11, 10], r"row 2 \(sample 10\): other samples' rows are between its own; "),
        ("rewards", [0.5], "rewards has 1 entries, tokens has 3"),
        ("loss_masks", [[1], [1], [1]], r"row 1 \(sample 10\): loss_masks has 1 entries, response_length is 2"),
        ("rollout_log_probs", [[-0.1], [-0.2, -0.3], []], r"row 2 \(sample 11\): rollout_log_probs has 0 entries"),
        ("response_lengths", [3, 2, 1], "row 0 .*: response_length 3 of 3 tokens; a row needs at least one prompt"),
        ("rollout_log_probs", [[math.nan], [-0.2, -0.3], [0.0]], r"row 0 \(sample 10\): rollout_log.* not finite"),
        ("rollout_log_probs", [[None], [-0.2, -0.3], [0.0]], "row 0 .*: rollout_log_probs holds None, expected"),
        ("rollout_log_probs", [None, [-0.2, -0.3], [0.0]], "row 0 .*: rollout_log_probs is None, expected finite"),
        ("rewards", [0.5, math.inf, 0], "row 1 .*: rewards is inf, expected a finite number"),
        ("rewards", [0.5, 0.5, "x"], r"row 2 \(sample 11\): rewards is 'x', expected a finite number"),
        ("rewards", [0.5, 0.5, None], "row 2 .*: rewards is None, expected a finite number"),
        ("loss_masks", [[1], [1, 2], [1]], r"row 1 .*: loss_masks holds another number than 0 and 1"),
        ("loss_masks", [[0.5], [1, 0], [1]], "row 0 .*: loss_masks holds 0.5, expected zeros and ones"),
        ("tokens", [[1, 2, "x"], [1, 4, 5, 6], [7, 8]], "row 0 .*: tokens holds 'x', expected token ids"),
        ("tokens", [[1, 2, -3], [1, 4, 5, 6], [7, 8]], "row 0 .*: tokens holds a number below 0"),
        ("rollout_ids", [10, [10], 11], r"row 1: rollout_ids is \[10\], expected a whole number"),
        ("rollout_mask_sums", [2, 2, 0], r"row 2 \(sample 11\): rollout_mask_sum 0, but 1 tokens are to be trained"),
        ("rollout_mask_sums", [2, 2, math.nan], "row 2 .*: rollout_mask_sums is nan, expected a finite number"),
        ("response_lengths", [1, 2, "1"], "row 2 .*: response_lengths is '1', expected a whole number"),
        ("tokens", 5, "tokens is 5, expected a list"),
        ("tokens", [[1, 2, 3], {1: 2, 3: 4}, [7, 8]], "row 1 .*: tokens is {1: 2, 3: 4}, expected token ids"),
        ("tokens", [[1, 2, 2**70], [1, 4, 5, 6], [7, 8]], "row 0 .*: tokens holds a number of 71 bits"),
        ("rewards", iter([0.5, 0.5, 0]), "rewards is .*, expected a list"),
        ("rewards", [0.5, HUGE, 0], "row 1 .*: rewards is a number of .* bits, expected a finite number"),
        ("rollout_ids", [10, HUGE, 11], "row 1: rollout_ids is a number of .* bits, expected a whole number"),
        ("rollout_ids", [10, 10**30, 11], "row 1: rollout_ids is a number of 100 bits, expected a whole number"),
        ("rollout_log_probs", [[-HUGE], [-0.2, -0.3], [0.0]], "row 0 .*: rollout_log_probs .* not finite"),
    ],
)
def test_bad_train_data_is_refused_in_one_line_that_names_the_key(key, value, message):
    data = train_data() | {key: value}
    if value is None:
        del data[key]
    with pytest.raises(TrainDataError, match=message) as error:
        rows_from_train_data(data)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("key", sorted(train_data().keys() - {"raw_reward"}))
def test_a_column_that_is_none_is_named(key):
    with pytest.raises(TrainDataError, match=f"^train data: {key} is None, expected a list with an entry for "):
        rows_from_train_data(train_data() | {key: None})


def test_a_token_that_the_model_does_not_know_is_named_before_it_is_looked_up():
    assert rows_from_train_data(train_data(), vocabulary=9)
    with pytest.raises(TrainDataError, match=r"row 2 \(sample 11\): token 8 is none of the model's 8"):
        rows_from_train_data(train_data(), vocabulary=8)


def test_an_optimizer_step_holds_whole_trajectories_in_order_of_first_occurrence():
    rows = rows_of(5, 3, 5, 9, 3, 1)
    first, second = optimizer_steps(rows, 2)
    assert [row.rollout_id for row in first] == [5, 5, 3, 3]
    assert [row.rollout_id for row in second] == [9, 1]


@pytest.mark.parametrize("rollout_ids", [(1, 2, 3), ()])
def test_trajectories_that_do_not_fill_the_last_step_are_refused(rollout_ids):
    with pytest.raises(TrainDataError, match=f"{len(rollout_ids)} trajectories do not divide into steps of 2"):
        optimizer_steps(rows_of(*rollout_ids), 2)
