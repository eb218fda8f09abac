"""A rollout of a host in which everything failed ends the run before it is trained on, with a filter or without."""

from types import SimpleNamespace

import pytest

from mem_agent import rollout
from mem_agent.config import Config
from mem_agent.custom_convert import custom_convert
from mem_agent.hooks import survivors
from mem_agent.hooks.survivors import AllFailed
from mem_agent.tests.helpers.samples import trajectory, turns_of


@pytest.fixture
def args(tmp_path):
    survivors._dead.clear()
    config = Config(save_path=str(tmp_path), dynamic_filter="nonzero_std", rollout_batch_size=2)
    return SimpleNamespace(mem_agent=config, save=config.save_path)


def failed(number=0, group=0):
    return trajectory((), "failed", failure="connection", record={"failure_message": "http://x: refused"},
                      index=number, group_index=group, reward=0.0)


def good(number=0, group=0, reward=1.0, status="completed"):
    return trajectory(turns_of([2]), status, index=number, group_index=group, reward=reward)


@pytest.mark.parametrize("one,trains", [
    (failed(3), False),
    (good(3), True),
    (good(3, status="truncated"), True),
    (good(3, status="aborted"), False),
])
def test_a_batch_is_trained_on_if_one_of_it_ended(args, one, trains):
    batch = [failed(0), failed(1), failed(2), one]
    if trains:
        assert len(custom_convert(args, batch)["tokens"]) == 4
        return
    with pytest.raises(AllFailed, match=r"all 4 trajectories of a rollout failed, .*; the first: http://x: refused"):
        custom_convert(args, batch)


def test_aborted_ones_alone_end_nothing(args):
    assert len(custom_convert(args, [good(n, status="aborted") for n in range(2)])["tokens"]) == 2


DEAD, ALIVE, ABORTED = [failed(), failed()], [failed(), good()], [good(status="aborted")] * 2


@pytest.mark.parametrize("groups,ends", [
    ([DEAD], False), ([DEAD, DEAD], True), ([DEAD, ALIVE, DEAD], False), ([DEAD, ALIVE, DEAD, DEAD], True),
    ([DEAD, ABORTED, DEAD], False),
])
def test_a_filter_that_sees_nothing_but_failures_ends_the_run(args, groups, ends):
    def judge():
        return [rollout.nonzero_std(args, group) for group in groups]

    if not ends:
        assert judge() == [False] * len(groups)
        return
    with pytest.raises(AllFailed, match=r"2 groups in succession failed, .*; the last: http://x: refused"):
        judge()
