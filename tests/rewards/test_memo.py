"""Memo: one request for many, failures not kept, bounded, alive as long as somebody waits."""

import asyncio
import sys

import pytest

from mem_agent.rewards.memo import Memo


def counted(memo, value=1, delay=0.01):
    made = []

    async def make():
        made.append(1)
        await asyncio.sleep(delay)
        if isinstance(value, Exception):
            raise value
        return value

    return made, lambda key: memo.get(key, make)


@pytest.mark.asyncio
async def test_who_asks_while_a_request_is_on_its_way_waits_for_it():
    memo = Memo(4)
    made, get = counted(memo)
    assert await asyncio.gather(*(get("a") for _ in range(8))) == [1] * 8
    assert await get("a") == 1 and len(made) == 1
    assert (memo.made, memo.shared) == (1, 8)


@pytest.mark.asyncio
async def test_a_failure_reaches_all_who_wait_and_is_not_kept():
    memo = Memo(4)
    made, get = counted(memo, ValueError("down"))
    results = await asyncio.gather(get("a"), get("a"), return_exceptions=True)
    assert [str(error) for error in results] == ["down"] * 2 and len(made) == 1 and not len(memo)
    with pytest.raises(ValueError, match="down"):
        await get("a")
    assert len(made) == 2


@pytest.mark.asyncio
async def test_the_values_used_last_are_kept():
    memo = Memo(2)
    made, get = counted(memo, delay=0)
    for key in "abac":  # b goes
        await get(key)
    assert len(memo) == 2 and len(made) == 3
    await get("a")
    assert len(made) == 3
    await get("b")
    assert len(made) == 4


@pytest.mark.asyncio
async def test_a_request_outlives_who_began_it_and_ends_with_the_last():
    memo, began, goes_on, ended = Memo(2), asyncio.Event(), asyncio.Event(), []

    async def make():
        began.set()
        try:
            await goes_on.wait()
            return 1
        finally:
            ended.append(sys.exc_info()[0])

    first, second = (asyncio.ensure_future(memo.get("a", make)) for _ in range(2))
    await began.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    goes_on.set()
    assert await second == 1 and ended == [None]
    began.clear()
    goes_on.clear()
    third = asyncio.ensure_future(memo.get("b", make))
    await began.wait()
    third.cancel()
    with pytest.raises(asyncio.CancelledError):
        await third
    goes_on.set()
    await asyncio.sleep(0)
    assert ended == [None, asyncio.CancelledError] and len(memo) == 1, "nobody waited for b"
    assert await memo.get("b", make) == 1


def test_loops_share_what_is_kept():
    memo = Memo(2)
    made, get = counted(memo)
    assert [asyncio.run(get("a")) for _ in range(3)] == [1] * 3 and len(made) == 1
