"""Group rollouts: data order, over-sampling, the dynamic filter, leftovers, failures, cancellation."""

import asyncio
from types import SimpleNamespace

import pytest

from mem_agent.agents.records import FailureKind
from mem_agent.hooks.sample import Record, Sample, failed
from mem_agent.rollout import nonzero_std
from mem_agent.tests.helpers.patience import HANGS_AFTER_S
from mem_agent.tests.helpers.samples import trajectory, turn
from mem_agent.training.group_rollout import Batch, Hooks, RolloutError, collect_batch

ARGS = SimpleNamespace()


def group_at(number):
    return [Sample(prompt=str(number), group_index=number, index=number * 2 + i) for i in range(2)]


def collect(generate, keep=None, batch=2, in_flight=2, first=0):
    async def reward(args, sample):
        return 0.25

    async def main():
        return await collect_batch(
            Hooks(generate, reward, keep), ARGS, group_at, first, batch, in_flight, lambda s: {"seed": s.index}
        )

    return asyncio.run(main())


async def good(args, sample, sampling, delay=0.0):
    await asyncio.sleep(delay)
    sample.status, sample.reward = Sample.Status.COMPLETED, float(sample.index % 2)
    return sample


def numbers(batch):
    return [g[0].group_index for g in batch.groups]


def test_the_batch_is_in_data_order_even_when_later_groups_are_faster():
    async def slow_first(args, sample, sampling):
        return await good(args, sample, sampling, 0.05 if sample.group_index == 0 else 0.0)

    batch = collect(slow_first, in_flight=4)
    assert numbers(batch) == [0, 1] and batch.next_group == 2


def test_worked_example_of_the_docstring():
    started, cancelled = [], []

    async def generate(args, sample, sampling):
        started.append(sample.group_index)
        try:
            return await good(args, sample, sampling, 0.01 * sample.group_index**2)
        except asyncio.CancelledError:
            cancelled.append(sample.group_index)
            raise

    batch = collect(generate, keep=lambda args, group: group[0].group_index != 5, in_flight=3, first=4)
    assert numbers(batch) == [4, 6] and len(batch.dropped) == 1 and len(batch.sampled) == 6 and batch.next_group == 7
    assert set(started) == {4, 5, 6, 7} and set(cancelled) == {7}


def test_reward_hook_fills_only_missing_rewards():
    async def unscored(args, sample, sampling):
        sample = await good(args, sample, sampling)
        if sample.index % 2:
            sample.reward = None
        return sample

    batch = collect(unscored)
    assert [s.reward for s in batch.samples] == [0.0, 0.25, 0.0, 0.25]


def test_the_filter_keeps_groups_that_differ():
    async def half(args, sample, sampling):
        sample = await good(args, sample, sampling)
        if sample.group_index % 2 == 0:
            sample.reward = 1.0
        return sample

    assert numbers(collect(half, keep=nonzero_std)) == [1, 3]


def test_a_hopeless_filter_ends_with_a_reason():
    with pytest.raises(RolloutError, match="DYNAMIC_FILTER=none"):
        collect(good, keep=lambda args, group: False)


async def failing(args, sample, sampling):
    sample.status, sample.reward = Sample.Status.FAILED, 0.0
    lost = Record.of_trajectory(failed(FailureKind.CONNECTION, "http://x: refused"))
    sample.train_metadata = lost.to_dict()
    return sample


def test_failed_trajectories_stay_in_the_batch():
    async def one_fails(args, sample, sampling):
        return await (failing if sample.index == 1 else good)(args, sample, sampling)

    assert [s.status.value for s in collect(one_fails).samples] == ["completed", "failed", "completed", "completed"]


def test_a_rollout_without_survivors_ends_with_the_first_reason():
    with pytest.raises(RolloutError, match="all 4 trajectories of a rollout failed; the first: http://x: refused"):
        collect(failing)


def test_a_hook_that_raises_cancels_the_rest():
    cancelled = []

    async def generate(args, sample, sampling):
        if sample.index == 0:
            raise ValueError("bug")
        try:
            await asyncio.sleep(HANGS_AFTER_S)
        except asyncio.CancelledError:
            cancelled.append(sample.index)
            raise

    with pytest.raises(ValueError, match="bug"):
        collect(generate)
    assert cancelled == [1, 2, 3]


def test_filter_counts_a_fanned_out_trajectory_once():
    def sample(reward, status="completed"):
        return Sample(reward=reward, status=Sample.Status(status))

    assert not nonzero_std(ARGS, [[sample(1.0), sample(1.0)], [sample(1.0)]])
    assert nonzero_std(ARGS, [[sample(1.0), sample(1.0)], sample(0.0)])
    assert not nonzero_std(ARGS, [sample(1.0), sample(0.0, "failed"), sample(0.0, "aborted")])
    earned = [sample(1.0), sample(1.0)]
    for one, gains in zip(earned, ([1.0, 0.0], [0.0, 0.0]), strict=True):
        turns = [turn(state_rewards={"format": 1.0, "gain": gain}) for gain in gains]
        one.train_metadata = trajectory(turns).train_metadata
    for alpha, kept in ((0.8, True), (1.0, False)):
        settings = {"AGENT": "rememr1", "AGENT_ARGS": f"alpha={alpha}"}
        assert nonzero_std(SimpleNamespace(mem_agent=settings), earned) is kept
    assert nonzero_std(SimpleNamespace(reward_key="s"), [sample({"s": 1.0}), sample({"s": 0.0})])


LOST = [
    ("failed", "connection", True), ("failed", "timeout", True), ("failed", "server_error", True),
    ("failed", "bad_response", True), ("aborted", None, True),
    ("failed", "rejected", False), ("failed", "long_prompt", False), ("failed", "internal", False),
    ("completed", None, False), ("truncated", None, False),
]


@pytest.mark.parametrize("status,failure,lost", LOST)
def test_what_servers_may_have_lost_is_seen_in_kept_and_dropped_groups(status, failure, lost):
    fine = Sample(status=Sample.Status.COMPLETED)  # of another generate hook: it describes nothing
    other = trajectory(status=status, failure=failure)
    assert Batch([[fine, other]], 1, []).lost is lost
    assert Batch([[fine]], 2, [[fine, other]]).lost is lost
