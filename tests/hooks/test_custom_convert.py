"""The converter keeps every trajectory, weighs each once, and fits the hosts' schedule; its two advantages."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mem_agent import custom_convert as converter
from mem_agent.custom_convert import COLUMNS, custom_convert, row_counts
from mem_agent.tests.helpers import samples


def trajectory(index, group=0, reward=1.0, lengths=(3, 2), status="completed"):
    turns = samples.turns_of(lengths)
    return samples.trajectory(turns, status, index=index, group_index=group, reward=reward)


def convert(batch, settings=(), **args):
    return custom_convert(SimpleNamespace(mem_agent=dict(settings), **args), batch)


def test_worked_example_of_the_docstring():
    data = convert([trajectory(7, reward=1.0, lengths=(3, 2)), trajectory(8, reward=0.0, lengths=(2,))])
    assert set(data) == set(COLUMNS)
    assert (data["rollout_ids"], data["rewards"]) == ([7, 7, 8], [0.5, 0.5, -0.5])
    assert (data["rollout_mask_sums"], data["response_lengths"]) == ([5, 5, 2], [3, 2, 2])
    assert data["raw_reward"] == [1.0, 1.0, 0.0]


def test_samples_of_another_hook_without_log_probs_under_args_without_attributes():
    """The hosts' own contract test."""
    batch = [samples.foreign(index=i, tokens=[i, i + 1], rollout_log_probs=None) for i in range(2)]
    assert set(custom_convert(type("Args", (), {})(), batch)) == set(COLUMNS) - {"rollout_log_probs"}


STATUSES = ("completed", "completed", "truncated", "failed", "aborted")
BATCHES = st.lists(st.tuples(
    st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0]), st.lists(st.integers(1, 5), min_size=1, max_size=12),
    st.sampled_from(STATUSES)), min_size=1, max_size=16)


@settings(max_examples=80)
@given(BATCHES, st.integers(1, 5), st.integers(1, 8), st.booleans())
def test_every_trajectory_survives_and_weighs_once(rows, dp, step, std):
    assume(set(STATUSES[:3]) & {status for *_, status in rows})  # else the run ends
    batch = [trajectory(i, g, r, tuple(n), s) for i, (g, r, n, s) in enumerate(rows)]
    args = {"data_parallel_size": dp, "global_batch_size": step}
    data = convert(batch, {"ADV_STD": std}, **args)
    assert row_counts(SimpleNamespace(mem_agent={}, **args), batch)["rows"] == len(data["tokens"])
    assert list(dict.fromkeys(data["rollout_ids"])) == list(range(len(batch)))
    for i, (_, _, lengths, status) in enumerate(rows):
        mine = [k for k, rollout_id in enumerate(data["rollout_ids"]) if rollout_id == i]
        trained = sum(lengths) if status in STATUSES[:3] else 0
        assert sum(sum(data["loss_masks"][k]) for k in mine) == trained
        assert {data["rollout_mask_sums"][k] for k in mine} == {trained}
        assert len({data["rewards"][k] for k in mine if sum(data["loss_masks"][k])}) == bool(trained)
    for first in range(0, len(batch), step):
        assert sum(first <= rollout_id < first + step for rollout_id in data["rollout_ids"]) % dp == 0


# --- advantages -----------------------------------------------------------------------------------------------------

GOLDEN = [
    ([1, 0, None, 1], "aaaa", False, [1 / 3, -2 / 3, 0, 1 / 3]),
    ([1, 0, 0, 0], "abba", False, [0.5, 0, 0, -0.5]),
    ([1], "a", True, [0]),
    # mean 1/2, unbiased std sqrt(2 * 1/4 / 1) = sqrt(1/2)
    ([1, 0], "aa", True, [0.5 / (math.sqrt(0.5) + 1e-6), -0.5 / (math.sqrt(0.5) + 1e-6)]),
    ([2, 2, 2], "aaa", True, [0, 0, 0]),
]


@pytest.mark.parametrize(("rewards", "groups", "std", "expected"), GOLDEN)
def test_group_advantages(rewards, groups, std, expected):
    assert converter.group_advantages(rewards, groups, std) == pytest.approx(expected)


@pytest.mark.parametrize(("alpha", "weight", "expected"), [
    (0.8, 1.0, [[0.8 * 0.5 + 0.2 * 0.5, 0.8 * 0.5], [-0.8 * 0.5 - 0.2 * 0.5, -0.8 * 0.5]]),
    (0.8, 2.0, [[0.6, 0.4], [-0.6, -0.4]]),
    (0.0, 1.0, [[0.5, 0.0], [-0.5, 0.0]]),
    (1.0, 1.0, [[0.5, 0.5], [-0.5, -0.5]]),
])
def test_the_worked_example_of_turns(alpha, weight, expected):
    mixed = converter.turn_advantages([0.5, -0.5], [[2, 1], [1, 1]], "aa", alpha, weight)
    assert mixed == [pytest.approx(row) for row in expected]


def test_statistics_of_turns_are_of_one_group_and_one_turn():
    # Turn 1 of group a: 2, 1 (mean 3/2); turn 2 of group a: 4 alone; group b alone; the last has none.
    mixed = converter.turn_advantages([0.0] * 4, [[2, 4], [1], [9, 9], None], "aaba", 0.0)
    assert mixed == [[0.5, 0.0], [-0.5], [0.0, 0.0], None]
