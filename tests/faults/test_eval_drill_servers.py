"""What an evaluation survives, on vLLM and vllm-router."""

import os

import pytest

from mem_agent.tests.faults.drill import EVAL_FAULTS, can_mount, eval_drill
from mem_agent.tests.faults.faults import DISK_FULL, TRAINER_KILLED

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3600)]


def test_a_killed_evaluation_has_the_rows_of_an_unbroken_one():
    chosen = EVAL_FAULTS if os.environ.get("DRILL") == "all" else [TRAINER_KILLED]
    eval_drill([fault for fault in chosen if can_mount() or fault is not DISK_FULL])
