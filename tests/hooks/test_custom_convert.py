"""The converter keeps every trajectory, weighs each once, and fits the hosts' schedule; its two advantages."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mem_agent.custom_convert import (
    COLUMNS,
    ConvertError,
    custom_convert,
    group_advantages,
    row_counts,
    turn_advantages,
)
from mem_agent.hooks.sample import Sample
from mem_agent.tests.helpers import samples
from mem_agent.tests.helpers.samples import turns_of


def trajectory(index, group=0, reward=1.0, lengths=(3, 2), status="completed", **fields):
    return samples.trajectory(turns_of(lengths), status, index=index, group_index=group, reward=reward, **fields)


def convert(batch, settings=(), **args):
    return custom_convert(SimpleNamespace(mem_agent=dict(settings), **args), batch)


def test_worked_example_of_the_docstring():
    data = convert([trajectory(7, reward=1.0, lengths=(3, 2)), trajectory(8, reward=0.0, lengths=(2,))])
    assert set(data) == set(COLUMNS)
    assert data["rollout_ids"] == [7, 7, 8]
    assert data["rewards"] == [0.5, 0.5, -0.5]
    assert data["rollout_mask_sums"] == [5, 5, 2]
    assert data["response_lengths"] == [3, 2, 2]
    assert data["raw_reward"] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("status", ["failed", "aborted"])
def test_a_failure_is_one_masked_row_outside_the_statistics(status):
    bad = trajectory(1, reward=0.0, status=status, lengths=(3, 3))
    data = convert([trajectory(0, reward=1.0), bad, trajectory(2, reward=0.0)])
    row = data["rollout_ids"].index(1)
    assert data["rollout_ids"].count(1) == 1
    assert data["loss_masks"][row] == [0] and data["rewards"][row] == 0.0 and data["rollout_mask_sums"][row] == 0
    assert data["rewards"][0] == 0.5  # mean of 1 and 0, not of 1, 0 and 0


def test_rows_of_each_step_are_padded_to_the_data_parallel_size():
    batch = [trajectory(i, group=i // 2, reward=i % 2, lengths=(2,) * (i + 1)) for i in range(4)]
    data = convert(batch, data_parallel_size=4, global_batch_size=2)  # steps of 3 and 7 rows
    assert data["rollout_ids"] == [0, 1, 1, 1] + [2] * 3 + [3] * 5
    assert [sum(m) for m in data["loss_masks"]].count(0) == 2
    assert data["rollout_mask_sums"][:4] == [2, 4, 4, 4]


def of_other_hook(index=7, **fields):
    given = {"reward": 0.5, "tokens": [1, 2], "response_length": 1, "rollout_log_probs": [-0.1], **fields}
    return Sample(index=index, status=Sample.Status.COMPLETED, **given)


def test_samples_of_another_hook_without_log_probs_under_args_without_attributes():
    """The hosts' own contract test."""
    batch = [of_other_hook(i, tokens=[i, i + 1], rollout_log_probs=None) for i in range(2)]
    assert set(custom_convert(type("Args", (), {})(), batch)) == set(COLUMNS) - {"rollout_log_probs"}


@pytest.mark.parametrize("samples", [
    [of_other_hook(), of_other_hook()], [of_other_hook(response_length=3, loss_mask=[1] * 3)],
    [of_other_hook(reward=float("nan"))], [of_other_hook(rollout_log_probs=[])],
])
def test_a_sample_of_another_hook_that_cannot_be_a_row_is_named(samples):
    with pytest.raises(ConvertError, match="7"):
        convert(samples)


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0]),
                  st.lists(st.integers(1, 5), min_size=1, max_size=12),
                  st.sampled_from(["completed", "completed", "truncated", "failed", "aborted"])),
        min_size=1, max_size=16),
    st.integers(1, 5), st.integers(1, 8), st.booleans(),
)
def test_every_trajectory_survives_and_weighs_once(rows, dp, step, std):
    assume({"completed", "truncated"} & {status for *_, status in rows})  # else the run ends
    batch = [trajectory(i, g, r, tuple(n), s) for i, (g, r, n, s) in enumerate(rows)]
    args = {"data_parallel_size": dp, "global_batch_size": step}
    data = convert(batch, {"ADV_STD": std}, **args)
    assert row_counts(SimpleNamespace(mem_agent={}, **args), batch)["rows"] == len(data["tokens"])
    assert list(dict.fromkeys(data["rollout_ids"])) == list(range(len(batch)))
    for i, (_, _, lengths, status) in enumerate(rows):
        mine = [k for k, rid in enumerate(data["rollout_ids"]) if rid == i]
        trained = sum(sum(data["loss_masks"][k]) for k in mine)
        assert {data["rollout_mask_sums"][k] for k in mine} == {trained}
        assert trained == (sum(lengths) if status in ("completed", "truncated") else 0)
        assert len({data["rewards"][k] for k in mine if sum(data["loss_masks"][k])}) <= 1
    for first in range(0, len(batch), step):
        ids = set(range(first, min(first + step, len(batch))))
        assert sum(rid in ids for rid in data["rollout_ids"]) % dp == 0


# --- advantages -----------------------------------------------------------------------------------------------------

GOLDEN = [
    ([1, 0, None, 1], "aaaa", False, [1 / 3, -2 / 3, 0, 1 / 3]),
    ([1, 0, 0, 0], "abba", False, [0.5, 0, 0, -0.5]),
    ([1], "a", True, [0]),
    # mean 1/2, unbiased std sqrt(2 * 1/4 / 1) = sqrt(1/2)
    ([1, 0], "aa", True, [0.5 / (math.sqrt(0.5) + 1e-6), -0.5 / (math.sqrt(0.5) + 1e-6)]),
    ([2, 2, 2], "aaa", True, [0, 0, 0]),
    ([None, None], "aa", True, [0, 0]),
]


@pytest.mark.parametrize(("rewards", "groups", "std", "expected"), GOLDEN)
def test_group_advantages(rewards, groups, std, expected):
    assert group_advantages(rewards, groups, std) == pytest.approx(expected)


@pytest.mark.parametrize(("alpha", "weight", "expected"), [
    (0.8, 1.0, [[0.8 * 0.5 + 0.2 * 0.5, 0.8 * 0.5], [-0.8 * 0.5 - 0.2 * 0.5, -0.8 * 0.5]]),
    (0.8, 2.0, [[0.6, 0.4], [-0.6, -0.4]]),
    (0.0, 1.0, [[0.5, 0.0], [-0.5, 0.0]]),
    (1.0, 1.0, [[0.5, 0.5], [-0.5, -0.5]]),
])
def test_the_worked_example_of_turns(alpha, weight, expected):
    mixed = turn_advantages([0.5, -0.5], [[2, 1], [1, 1]], "aa", alpha, weight)
    assert mixed == [pytest.approx(row) for row in expected]


def test_statistics_of_turns_are_of_one_group_and_one_turn():
    # Turn 1 of group a: 2, 1 (mean 3/2); turn 2 of group a: 4 alone; group b alone; the last has none.
    mixed = turn_advantages([0.0] * 4, [[2, 4], [1], [9, 9], None], "aaba", 0.0)
    assert mixed == [[0.5, 0.0], [-0.5], [0.0, 0.0], None]
