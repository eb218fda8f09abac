"""Rows from a converter hook's dict, and how they become optimizer steps."""

from mem_agent.training.rows import TrainRow, optimizer_steps, rows_from_train_data


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


def test_an_optimizer_step_holds_whole_trajectories_in_order_of_first_occurrence():
    rows = rows_of(5, 3, 5, 9, 3, 1)
    first, second = optimizer_steps(rows, 2)
    assert [row.rollout_id for row in first] == [5, 5, 3, 3]
    assert [row.rollout_id for row in second] == [9, 1]
