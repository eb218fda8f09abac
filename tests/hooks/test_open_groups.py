"""How many groups of a fully asynchronous run are open at once, and which are known to be lost."""

import asyncio
from types import SimpleNamespace

from mem_agent.hooks import open_groups
from mem_agent.hooks.host import HostArgs
from mem_agent.hooks.open_groups import OpenGroups
from mem_agent.tests.helpers.patience import HANGS_AFTER_S


def finish(groups, *numbers):
    for number in numbers:
        assert groups.admit(number)
        for _ in range(groups.size):
            groups.end(number, aborted=False)


def test_no_more_groups_begin_than_are_to_be_open():
    groups = OpenGroups(most=2, size=2)
    assert groups.admit(0) and groups.admit(0) and groups.admit(1) and not groups.admit(2)
    finish(groups, 0)
    assert not groups.admit(2)  # finished, but no rollout has taken it
    assert groups.take({0}) == 0 and groups.admit(2)


def test_a_group_that_a_later_rollout_passed_over_is_lost():
    groups = OpenGroups(most=9, size=1)
    finish(groups, 0, 1, 2)
    assert groups.take({0}) == 0  # 1 and 2 may have finished after the rollout looked
    finish(groups, 3, 4)
    assert groups.take({2, 3}) == 1  # 1 is lost, 4 may be taken yet
    assert groups.take({4}) == 0


def test_an_aborted_group_makes_room_and_keeps_what_has_ended():
    groups = OpenGroups(most=1, size=2)
    assert groups.admit(0)
    groups.end(0, aborted=False)
    groups.end(0, aborted=True)
    assert groups.admit(1) and not groups.admit(0)
    groups.end(1, aborted=True)
    assert groups.admit(0)
    groups.end(0, aborted=False)
    groups.take({7}), groups.take({8})
    assert groups.admit(2)  # 0 was finished, and lost


def host_of(tmp_path, dialect, **config):
    names = {f"{dialect}_router_ip": "h", f"{dialect}_router_port": 1, "save": str(tmp_path)}
    return HostArgs.of(SimpleNamespace(**names, rollout_batch_size=1, n_samples_per_prompt=1, mem_agent=config))


def test_a_trajectory_waits_until_there_is_room_or_the_host_ends(tmp_path):
    host = host_of(tmp_path, "vllm", FULLY_ASYNC=1)
    ending = []

    async def main():
        for number in range(2):  # one, and its quarter
            await open_groups.begin(host, SimpleNamespace(group_index=number), lambda: False)
        waiting = asyncio.create_task(open_groups.begin(host, SimpleNamespace(group_index=2), lambda: bool(ending)))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        ending.append(True)
        await asyncio.wait_for(waiting, HANGS_AFTER_S)

    asyncio.run(main())
