"""Rows from a converter hook's dict, and how they become optimizer steps."""

from mem_agent.training.rows import TrainRow, optimizer_steps, rows_from_train_data


def test_a_converters_dict_becomes_rows_and_optimizer_steps_of_whole_trajectories():
    rows = rows_from_train_data({
        "tokens": [[1, 2, 3], [1, 4, 5, 6], [7, 8]], "response_lengths": [1, 2, 1], "rewards": [0.5, 0.5, -0.5],
        "loss_masks": [[1], [1, 0], [1]], "rollout_ids": [10, 10, 9], "rollout_mask_sums": [2, 2, 1],
        "rollout_log_probs": [[-0.1], [-0.2, -0.3], [-0.4]], "raw_reward": [1.0, 1.0, 0.0],
    })
    assert rows[1] == TrainRow([1, 4, 5, 6], 2, [1, 0], [-0.2, -0.3], 0.5, 10, 2.0)
    assert (rows[1].prompt_length, rows[1].response) == (2, [5, 6])
    assert optimizer_steps(rows, 1) == [rows[:2], rows[2:]] and optimizer_steps(rows, 2) == [rows]
