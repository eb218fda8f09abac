"""What a run survives, on megatron-core, vLLM and vllm-router; every fault in every moment with ``DRILL=all``."""

import os
from itertools import pairwise

import pytest

from mem_agent.tests.faults import faults
from mem_agent.tests.faults.drill import Strike, can_mount, drill_like_unbroken
from mem_agent.tests.faults.faults import Moment

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3600)]

STRIKES = [
    Strike(faults.ENGINE_KILLED, Moment.SAMPLING, 0, count=9),
    Strike(faults.ROUTER_KILLED, Moment.SAMPLING, 1, count=5),
    Strike(faults.CHECKPOINT_DAMAGED, Moment.SAMPLING, 2),
    Strike(faults.DISK_FULL, Moment.UPDATE, 2),
]
if os.environ.get("DRILL") == "all":
    STRIKES = [Strike(fault, moment, rollout, 9 if moment in (Moment.SAMPLING, Moment.EVALUATION) else 1)
               for rollout, (fault, moment) in enumerate(faults.MATRIX, start=1)]


def test_a_run_with_faults_in_every_rollout_equals_the_unbroken_one():
    strikes = [strike for strike in STRIKES if can_mount() or strike.fault is not faults.DISK_FULL]
    attempts, metrics = drill_like_unbroken(strikes, max(strike.rollout for strike in strikes) + 1)
    assert any(line["repeated"] for line in metrics)
    [after] = [later for one, later in pairwise(attempts) if one.strikes[-1].fault is faults.CHECKPOINT_DAMAGED]
    [damage] = [strike for strike in strikes if strike.fault is faults.CHECKPOINT_DAMAGED]
    assert f"iter_{damage.rollout - 1:07d}" in after.said, "the damaged checkpoint is named"
