"""Announcements arrive one by one, stand still until they are let go, and never hold up a drill that has ended."""

import itertools
import os
import signal
import subprocess
import sys

import pytest

from mem_agent.tests.faults.drill import InOrder, Strike
from mem_agent.tests.faults.faults import ENGINE_KILLED, ROUTER_KILLED, Answer
from mem_agent.tests.faults.moments import MARK, Announcement, Hub, Moment, go
from mem_agent.tests.faults.soak import strikes
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

OBSERVED = """
from mem_agent.tests.faults.moments import Announcer, Moment
announcer = Announcer()
announcer.begin(3)
for _ in range(2):
    announcer.announce(Moment.SAMPLING)
announcer.begin(None)
announcer.announce(Moment.UPDATE)
"""


@pytest.fixture
def hub(tmp_path):
    hub = Hub(tmp_path / "hub")
    yield hub
    hub.close()


def observed(tmp_path, code=OBSERVED):
    return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, MARK: str(tmp_path / "hub")})


def test_moments_come_in_order_with_their_rollout_and_count(hub, tmp_path):
    process, seen = observed(tmp_path), []
    while (met := hub.next(process.pid, HANGS_AFTER_S)) is not None:
        told, line = met
        assert process.poll() is None
        seen.append((told.moment, told.rollout, told.count, told.pid == process.pid))
        go(line)
    assert process.wait() == 0
    assert seen == [(Moment.SAMPLING, 3, 1, True), (Moment.SAMPLING, 3, 2, True), (Moment.UPDATE, 3, 1, True)]


def test_a_process_that_is_killed_in_its_moment_has_ended(hub, tmp_path):
    process = observed(tmp_path)
    _told, line = hub.next(process.pid, HANGS_AFTER_S)
    process.send_signal(signal.SIGKILL)
    go(line)
    assert hub.next(process.pid, HANGS_AFTER_S) is None and process.wait() == -signal.SIGKILL


def test_a_process_that_hangs_is_told_from_one_that_works(hub, tmp_path):
    process = observed(tmp_path, "import time; time.sleep(600)")
    with pytest.raises(TimeoutError, match="neither announced anything nor ended"):
        hub.next(process.pid, 0.2)
    process.kill()
    process.wait()


def test_strikes_fall_in_order_each_in_the_first_moment_that_is_theirs():
    first = Strike(ENGINE_KILLED, Moment.SAMPLING, 1, count=9)
    second = Strike(ROUTER_KILLED, Moment.SYNC, 1)
    plan = InOrder([first, second])
    met = [(Moment.SYNC, 1, 1), (Moment.SAMPLING, 0, 9), (Moment.SAMPLING, 1, 8), (Moment.SAMPLING, 2, 10),
           (Moment.SAMPLING, 2, 11), (Moment.SYNC, 2, 1)]
    struck = [plan.due(Announcement(*moment, pid=1)) for moment in met]
    assert struck == [None, None, None, first, None, second]


@pytest.mark.parametrize("fault", [ENGINE_KILLED, ROUTER_KILLED])
def test_a_server_that_dies_of_its_start_ends_a_run_and_later_it_does_not(fault):
    assert fault.answer_in(Moment.START) is Answer.ENDS
    assert fault.answer_in(Moment.SAMPLING) is Answer.GOES_ON


def test_a_soak_is_a_function_of_its_seed():
    def drawn(seed):
        return [(s.fault.name, s.moment, s.rollout, s.count) for s, _ in zip(strikes(seed), range(50), strict=False)]

    assert drawn(1) == drawn(1) != drawn(2)
    rollouts = [rollout for _, _, rollout, _ in drawn(1)]
    assert all(10 <= b - a <= 20 for a, b in itertools.pairwise(rollouts))
