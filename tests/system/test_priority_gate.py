"""The gate: who is next, and that no cancellation loses or doubles a slot."""

import asyncio
import random

import pytest

from mem_agent.system.concurrency import PriorityGate
from mem_agent.tests.helpers.patience import HANGS_AFTER_S


def test_the_heaviest_is_next_and_the_oldest_among_equals():
    async def main():
        gate, order = PriorityGate(1), []

        async def one(name, weight):
            async with gate.slot(weight):
                order.append(name)
                await asyncio.sleep(0)

        await asyncio.gather(*(one(name, weight) for name, weight in
                               (("first", 0), ("a", 1), ("b", 3), ("c", 1), ("d", 3), ("e", 0))))
        assert order == ["first", "b", "d", "a", "c", "e"]

    asyncio.run(main())


def test_a_slot_handed_to_a_waiter_that_is_cancelled_goes_on():
    async def main():
        gate, entered = PriorityGate(1), []
        release = asyncio.Event()

        async def one(name, weight):
            async with gate.slot(weight):
                entered.append(name)
                await release.wait()

        holder, heavy, light = (asyncio.ensure_future(one(name, weight)) for name, weight in
                                (("holder", 0), ("heavy", 2), ("light", 1)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        release.set()
        await asyncio.sleep(0)
        heavy.cancel()  # it holds the slot by now, and has not run
        assert await asyncio.gather(holder, heavy, light, return_exceptions=True)
        async with gate.slot():
            assert entered == ["holder", "light"] and heavy.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(5))
def test_slots_are_all_used_and_never_exceeded_whoever_is_cancelled(seed):
    async def main():
        draw, gate = random.Random(seed), PriorityGate(3)
        inside = most = ended = 0

        async def one():
            nonlocal inside, most, ended
            async with gate.slot(draw.randrange(4)):
                inside += 1
                most = max(most, inside)
                try:
                    for _ in range(draw.randrange(4)):
                        await asyncio.sleep(0)
                    if draw.random() < 0.2:
                        raise OSError("an answer that failed")
                finally:
                    inside -= 1
            ended += 1

        tasks = [asyncio.ensure_future(one()) for _ in range(60)]
        while not all(task.done() for task in tasks):
            if draw.random() < 0.5:
                draw.choice(tasks).cancel()
            await asyncio.sleep(0)
        assert most == 3 and inside == 0 and ended
        async with asyncio.timeout(HANGS_AFTER_S), gate.slot(), gate.slot(), gate.slot():
            pass

    asyncio.run(main())
