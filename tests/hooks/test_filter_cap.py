"""MAX_GEN_BATCHES: a rollout whose groups are filtered again and again goes on, or ends the run with one line."""

from types import SimpleNamespace

import pytest

from mem_agent import rollout
from mem_agent.config import Config
from mem_agent.hooks import filter_cap
from mem_agent.hooks.filter_cap import NothingDiffers
from mem_agent.hooks.host import HostArgs
from mem_agent.tests.helpers.samples import trajectory, turns_of


@pytest.fixture
def args(tmp_path):
    def make(**settings):
        config = Config(save_path=str(tmp_path), dynamic_filter="nonzero_std", rollout_batch_size=2, **settings)
        return SimpleNamespace(mem_agent=config, save=config.save_path)

    filter_cap._judged.clear()
    return make


def group(*rewards):
    return [trajectory(turns_of([2]), reward=reward, group_index=0) for reward in rewards]


SAME, MIXED = (1.0, 1.0), (0.0, 1.0)


def kept(args, groups):
    return [rollout.nonzero_std(args, group(*rewards)) for rewards in groups]


def test_after_so_many_groups_all_go_through_and_are_counted(args):
    capped = args(max_gen_batches=2, over_sampling_batch_size=4)
    assert kept(capped, [SAME, MIXED, *[SAME] * 6]) == [False, True, *[False] * 6]
    assert kept(capped, [SAME, MIXED, SAME]) == [True] * 3
    assert filter_cap.take(HostArgs.of(capped)) == {"groups_let_through": 2}
    assert kept(capped, [SAME]) == [False], "the next rollout counts anew"


def test_a_host_that_draws_more_at_once_may_judge_more(args):
    capped = args(max_gen_batches=1)
    capped.over_sampling_batch_size = 3
    assert kept(capped, [MIXED, SAME, SAME, SAME]) == [True, False, False, True]


def test_not_one_group_that_differs_ends_the_run(args):
    capped = args(max_gen_batches=2)
    assert kept(capped, [SAME] * 4) == [False] * 4
    with pytest.raises(NothingDiffers, match="not one of 4 groups"):
        kept(capped, [SAME])
    filter_cap.begin(HostArgs.of(capped))
    assert kept(capped, [SAME] * 4 + [MIXED, SAME]) == [False] * 4 + [True, True]


def test_without_a_cap_the_filter_is_as_it_was(args):
    assert kept(args(), [SAME] * 50) == [False] * 50
    assert filter_cap.take(HostArgs.of(args())) == {}


def test_the_log_hook_ends_a_rollout(args):
    capped = args(max_gen_batches=1)
    kept(capped, [MIXED, SAME, SAME])
    told = {}
    rollout.log_rollout(0, capped, group(*MIXED), told, 1.0)
    assert told["rollout/memory/groups_let_through"] == 1 and kept(capped, [SAME]) == [False]
