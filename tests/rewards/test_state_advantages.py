"""State advantages beside those of the outcome: golden values and invariants, alone and through the converter."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.custom_convert import custom_convert
from mem_agent.rewards.advantages import group_advantages, turn_advantages
from mem_agent.tests.hooks.test_custom_convert import trajectory

EXAMPLE = ([0.5, -0.5], [[2, 1], [1, 1]], "aa")


@pytest.mark.parametrize(
    "alpha,expected",
    [
        (0.8, [[0.8 * 0.5 + 0.2 * 0.5, 0.8 * 0.5], [-0.8 * 0.5 - 0.2 * 0.5, -0.8 * 0.5]]),
        (0.0, [[0.5, 0.0], [-0.5, 0.0]]),
        (1.0, [[0.5, 0.5], [-0.5, -0.5]]),
    ],
)
def test_the_worked_example(alpha, expected):
    assert turn_advantages(*EXAMPLE, alpha) == [pytest.approx(row) for row in expected]


def test_statistics_are_of_one_group_and_one_turn():
    # Turn 1 of group a: 2, 1 (mean 3/2); turn 2 of group a: 4 alone; group b alone; the last has none.
    mixed = turn_advantages([0.0] * 4, [[2, 4], [1], [9, 9], None], "aaba", 0.0)
    assert mixed == [[0.5, 0.0], [-0.5], [0.0, 0.0], None]


def test_no_deviation_divides_state_advantages():
    samples = with_states([(0, 1.0, [3.0]), (0, 0.0, [1.0])])
    data = convert(samples, MEM_ALPHA=0, ADV_STD=1)
    assert data["rewards"] == [1.0, -1.0]


def with_states(rows):
    """Samples from (group, reward, state rewards by turn); a failed one where the reward is None."""
    samples = []
    for index, (group, reward, states) in enumerate(rows):
        status = "failed" if reward is None else "completed"
        one = trajectory(index, group, reward or 0.0, (2,) * len(states), status)
        for turn, state in zip(one.train_metadata["turns"], states, strict=True):
            turn["state_rewards"] = {"format": 0.0, "gain": state}
        samples.append(one)
    return samples


def convert(samples, **changes):
    return custom_convert(SimpleNamespace(mem_agent={"AGENT": "rememr1"} | changes), samples)


def by_trajectory(data):
    rows = {}
    for trajectory_id, advantage in zip(data["rollout_ids"], data["rewards"], strict=True):
        rows.setdefault(trajectory_id, []).append(advantage)
    return rows


STATE = st.integers(-8, 8).map(lambda n: n / 4)
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([None, 0.0, 0.5, 1.0]), st.lists(STATE, min_size=1, max_size=5)),
    min_size=1, max_size=12,
).filter(lambda rows: any(reward is not None for _, reward, _ in rows))  # else the run ends (test_survivors.py)


@settings(max_examples=80)
@given(ROWS, st.randoms(), st.sampled_from([0.0, 0.5, 0.8, 1.0]))
def test_permuting_the_batch_permutes_the_advantages(rows, random, alpha):
    samples = with_states(rows)
    straight = by_trajectory(convert(samples, MEM_ALPHA=alpha))
    random.shuffle(samples)
    shuffled = by_trajectory(convert(samples, MEM_ALPHA=alpha))
    assert list(shuffled) == [s.index for s in samples]
    assert all(shuffled[i] == pytest.approx(straight[i]) for i in straight)


@settings(max_examples=80)
@given(ROWS, st.booleans())
def test_alpha_1_is_memagent(rows, std):
    with_them, without = with_states(rows), with_states(rows)
    for sample in without:
        for turn in sample.train_metadata["turns"]:
            turn["state_rewards"] = None
    assert convert(with_them, MEM_ALPHA=1, ADV_STD=std) == convert(without, AGENT="memagent", ADV_STD=std)


@settings(max_examples=80)
@given(st.lists(st.tuples(st.integers(0, 3), STATE), min_size=1, max_size=12), st.sampled_from([0.0, 0.8, 1.0]))
def test_a_group_with_equal_rewards_gives_zero(groups, alpha):
    level = dict(groups)  # every trajectory of a group earns the same
    data = convert(with_states([(g, level[g], [level[g], 1.0]) for g, _ in groups]), MEM_ALPHA=alpha)
    assert data["rewards"] == pytest.approx([0.0] * len(data["rewards"]), abs=1e-12)


@settings(max_examples=80)
@given(ROWS)
def test_every_trajectory_and_every_turn_stays(rows):
    data = convert(with_states(rows))
    kept = by_trajectory(data)
    assert list(kept) == list(range(len(rows)))
    for index, (_, reward, states) in enumerate(rows):
        assert len(kept[index]) == (1 if reward is None else len(states))


def test_a_failure_is_in_no_mean_of_its_turns():
    data = by_trajectory(convert(with_states([(0, 1.0, [2.0]), (0, None, [9.0]), (0, 1.0, [1.0])]), MEM_ALPHA=0))
    assert data == {0: [0.5], 1: [0.0], 2: [-0.5]}


def test_turns_left_out_still_count_in_the_statistics_of_their_own():
    samples = with_states([(0, 1.0, [2.0, 4.0]), (0, 0.0, [1.0, 0.0])])
    assert convert(samples, MEM_ALPHA=0, TRAIN_TURNS="final")["rewards"] == [2.0, -2.0]
    assert convert(samples, MEM_ALPHA=0, TRAIN_TURNS="memory")["rewards"] == [0.5, -0.5]


def test_trajectories_without_state_rewards_are_trained_on_their_outcome():
    samples = [*with_states([(0, 1.0, [2.0])]), trajectory(1, 0, 0.0, (2, 2))]
    assert by_trajectory(convert(samples)) == {0: [0.4], 1: [-0.5, -0.5]}


@given(st.lists(st.tuples(st.integers(0, 2), st.lists(STATE, max_size=4)), max_size=9), st.floats(0, 1))
def test_as_long_as_the_turns(rows, alpha):
    groups, states = [g for g, _ in rows], [s for _, s in rows]
    outcomes = group_advantages([1.0] * len(rows), groups)
    assert [len(row) for row in turn_advantages(outcomes, states, groups, alpha)] == [len(s) for s in states]
