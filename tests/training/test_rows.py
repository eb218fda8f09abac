"""What the trainer accepts from a converter hook, and how rows become optimizer steps."""


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


def rows_of(*rollout_ids: int) -> list[TrainRow]:
    return [TrainRow([1, 2], 1, [1], [0.0], 0.0, rollout_id, 1.0) for rollout_id in rollout_ids]


def test_a_converters_dict_becomes_rows_in_order():
    rows = rows_from_train_data(train_data())
    assert rows[1] == TrainRow([1, 4, 5, 6], 2, [1, 0], [-0.2, -0.3], 0.5, 10, 2.0)
    assert (rows[1].prompt_length, rows[1].response) == (2, [5, 6])
    assert [row.rollout_id for row in rows] == [10, 10, 11]


@pytest.mark.parametrize(("key", "value", "where"), [
    ("rollout_ids", None, "rollout_ids"), ("loss_masks", [[1], [1], [1]], r"row 1 \(sample 10\): loss_masks"),
    ("rollout_log_probs", [[-0.1], [-0.2, -0.3], []], r"row 2 \(sample 11\): rollout_log_probs"),
    ("response_lengths", [3, 2, 1], "row 0.*response_length"), ("rollout_mask_sums", [2, 2, 0], "row 2.*mask_sum"),
])
def test_bad_train_data_is_refused_by_row_and_key(key, value, where):
    data = train_data() | {key: value}
    if value is None:
        del data[key]
    with pytest.raises(TrainDataError, match=where):
        rows_from_train_data(data)


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
