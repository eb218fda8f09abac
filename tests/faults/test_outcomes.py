"""How a fault was survived is read off what the run said: its last line, not words of its log."""

import pytest

from mem_agent.tests.faults import faults
from mem_agent.tests.faults.drill import Strike, _how
from mem_agent.tests.faults.moments import Moment

WENT_ON = "12:00:00 trajectory 3: server_error: http://x answered 503\n12:00:01 engine-0 replaced, restart 1 of 3\n"
ENDED = "error: run/logs: No space left on device\n"


def test_a_failure_in_the_log_ends_nothing():
    assert _how(Strike(faults.ENGINE_KILLED, Moment.EVALUATION, 1), WENT_ON, 0) == "1 replaced"
    assert _how(Strike(faults.DISK_FULL, Moment.UPDATE, 1), WENT_ON + ENDED, 1).startswith("ended with code 1")


@pytest.mark.parametrize("fault,said,code", [
    (faults.ENGINE_KILLED, ENDED, 1), (faults.DISK_FULL, WENT_ON, 0), (faults.TRAINER_KILLED, ENDED, 1),
])
def test_what_ends_otherwise_than_it_should_falls(fault, said, code):
    with pytest.raises(AssertionError):
        _how(Strike(fault, Moment.UPDATE, 1), said, code)
