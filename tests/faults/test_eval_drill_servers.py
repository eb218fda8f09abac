"""What an evaluation survives, on vLLM and vllm-router."""

import pytest

from mem_agent.tests.faults.drill import eval_drill
from mem_agent.tests.faults.faults import TRAINER_KILLED

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3600)]


def test_a_killed_evaluation_has_the_rows_of_an_unbroken_one():
    eval_drill([TRAINER_KILLED])
