"""What a run survives, on megatron-core, vLLM and vllm-router; more: ``python -m mem_agent.tests.faults suite``."""

from itertools import pairwise

import pytest

from mem_agent.tests.faults import faults
from mem_agent.tests.faults.drill import Strike, can_mount, drill_like_unbroken
from mem_agent.tests.faults.faults import Moment
from mem_agent.tests.faults.host_drill import host_drill

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3600)]

STRIKES = [
    Strike(faults.ENGINE_KILLED, Moment.SAMPLING, 0, count=9),
    Strike(faults.ROUTER_KILLED, Moment.SAMPLING, 1, count=5),
    Strike(faults.CHECKPOINT_DAMAGED, Moment.SAMPLING, 2),
    Strike(faults.DISK_FULL, Moment.UPDATE, 2),
]


def test_a_run_with_faults_in_every_rollout_equals_the_unbroken_one():
    strikes = [strike for strike in STRIKES if can_mount() or strike.fault is not faults.DISK_FULL]
    attempts, metrics = drill_like_unbroken(strikes, 3)
    assert metrics[0]["repeated"] >= 1
    [after] = [later for one, later in pairwise(attempts) if one.strikes[-1].fault is faults.CHECKPOINT_DAMAGED]
    assert "iter_0000001" in after.said, "the damaged checkpoint is named"


def test_a_killed_job_of_slime_goes_on_as_if_unbroken():
    host_drill()
