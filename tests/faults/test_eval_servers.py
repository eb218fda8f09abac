"""An evaluation whose engine is killed, and one that is killed itself, come to the rows of an unbroken one."""

import pytest

from mem_agent.tests.faults.eval_drill import eval_drill
from mem_agent.tests.faults.faults import ENGINE_KILLED, TRAINER_KILLED

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3600)]


def test_rows_are_those_of_an_unbroken_evaluation():
    found = dict(eval_drill([ENGINE_KILLED, TRAINER_KILLED]))
    assert found[TRAINER_KILLED.name] == "killed; the same command continued"
    assert not any(word in how for how in found.values() for word in ("DIFFERS", "FELL")), found
