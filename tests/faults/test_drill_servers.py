"""A short drill on megatron-core, vLLM and vllm-router. All of it: ``python -m mem_agent.tests.faults suite``."""

import pytest

from mem_agent.tests.faults.drill import Strike, drill, result_of, settings, unbroken
from mem_agent.tests.faults.faults import (
    CONNECTIONS_CUT,
    DISK_FULL,
    ENGINE_KILLED,
    EVERYTHING_KILLED,
    JOURNAL_TORN,
    ROUTER_KILLED,
    TMP_FULL,
)
from mem_agent.tests.faults.moments import Moment
from mem_agent.tests.faults.scene import can_mount, scene

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3600)]

STRIKES = [
    Strike(TMP_FULL, Moment.START, -1),
    Strike(ENGINE_KILLED, Moment.SAMPLING, 0, count=9),
    Strike(JOURNAL_TORN, Moment.SAVE, 1),
    Strike(ROUTER_KILLED, Moment.SAMPLING, 1, count=5),
    Strike(CONNECTIONS_CUT, Moment.SAMPLING, 1, count=9),
    Strike(DISK_FULL, Moment.UPDATE, 1),
    Strike(EVERYTHING_KILLED, Moment.SYNC, 2),
]


def test_a_run_that_is_hurt_in_every_rollout_is_the_unbroken_one():
    strikes = [strike for strike in STRIKES if can_mount() or not strike.fault.needs_disks]
    with scene(can_mount()) as place:
        whole = unbroken(place, settings(place, NUM_ROLLOUT=3))
    with scene(can_mount()) as place:
        outcomes = drill(place, settings(place, NUM_ROLLOUT=3), strikes)
        assert [outcome.strike for outcome in outcomes] == strikes
        assert "1 replaced, rollout sampled again" in [outcome.how for outcome in outcomes]
        assert result_of(place) == whole
