"""When a routing key ends: not before the last sibling has passed it, and never later than its group."""

import asyncio

import pytest

from mem_agent.client.sessions import Sessions
from mem_agent.tests.helpers.fake_router import FakeRouter
from mem_agent.tests.hooks.test_rollout import checkpoint, encode, run, sample  # noqa: F401 - a fixture


def ask(session, *keys):
    for key in keys:
        with session.asking(key):
            pass


def test_a_key_ends_when_the_last_sibling_goes_on():
    ended = []
    sessions = Sessions(ended.append)
    with sessions.trajectory("g", 3) as a, sessions.trajectory("g", 3) as b, sessions.trajectory("g", 3) as c:
        for one in (a, b):
            ask(one, "0", "1")
        assert ended == []
        ask(c, "0")
        assert ended == []  # c may ask for it again
        ask(c, "1")
        assert ended == ["0"]
        ask(a, "2")
    assert sorted(ended) == ["0", "1", "2"] and len(sessions) == 0


def test_a_sibling_that_ended_early_is_not_waited_for_and_one_that_has_not_begun_is():
    ended = []
    sessions = Sessions(ended.append)
    with sessions.trajectory("g", 3) as a:
        with sessions.trajectory("g", 3) as b:
            ask(b, "0")  # stopped reading
        ask(a, "0", "1", "2")
        assert ended == []
        with sessions.trajectory("g", 3) as c:
            ask(c, "0", "1")
            assert ended == ["0"]
    assert sorted(ended) == ["0", "1", "2"] and len(sessions) == 0


def test_a_key_that_is_being_asked_for_is_not_passed():
    ended = []
    sessions = Sessions(ended.append)
    with sessions.trajectory("g", 1) as a:
        with a.asking("0"), a.asking("1"):  # side by side
            assert ended == []
        ask(a, "2")
        assert ended == ["0", "1"]
        ask(a, "0")  # the same text once more
        ask(a, "3")
    assert sorted(ended) == ["0", "0", "1", "2", "3"] and len(sessions) == 0


def test_a_trajectory_that_fails_or_is_cancelled_leaves_no_key():
    ended = []
    sessions = Sessions(ended.append)

    async def main(error):
        with sessions.trajectory("g", 2) as a, a.asking("0"):
            raise error

    for error in (OSError(), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            asyncio.run(main(error))
    assert ended == ["0", "0"] and len(sessions) == 0


@pytest.mark.parametrize("routing", ["chunk", "group", "trajectory"])
def test_every_key_of_a_rollout_ends_once(checkpoint, routing):  # noqa: F811
    router = FakeRouter(default=encode("x"), together=4)
    siblings = (sample(index=i) for i in range(4))
    run(router, checkpoint, *siblings, settings={"MEM_ROUTING": routing}, n_samples_per_prompt=4)
    keys = {headers["x-session-id"] for headers in router.headers}
    assert sorted(router.finished) == sorted(keys) and len(keys) == {"chunk": 3, "group": 1, "trajectory": 4}[routing]


def test_a_server_that_is_no_such_router_is_told_once(checkpoint):  # noqa: F811
    router = FakeRouter(default=encode("x"), missing=("/finish_session",))
    run(router, checkpoint, *(sample(index=i) for i in range(4)), n_samples_per_prompt=4)
    assert 1 <= len(router.finished) <= 3 and len(router.requests) == 12
