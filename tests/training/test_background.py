"""The event loop beside a trainer: what an interrupt cancels comes to its end before the loop does."""

import asyncio
import gc

import pytest

from mem_agent.training.side import Background


def test_what_was_cancelled_has_ended_when_the_loop_is_closed(capfd):
    background, ended = Background(), []

    async def slow_to_end():
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0.2)
            ended.append(True)

    async def several():
        await asyncio.gather(*(slow_to_end() for _ in range(3)))

    future = background.submit(several())
    background.run(asyncio.sleep(0))
    future.cancel()
    background.close()
    gc.collect()
    assert ended == [True] * 3 and capfd.readouterr().err == ""
    assert not background._thread.is_alive()


def test_the_result_and_the_error_are_those_of_the_coroutine():
    background = Background()

    async def fails():
        raise ValueError("why")

    assert background.run(asyncio.sleep(0, 7)) == 7
    with pytest.raises(ValueError, match="why"):
        background.run(fails())
    background.close()
