"""What an evaluation survives, on vLLM and vllm-router."""

import pytest

from mem_agent.tests.faults.drill import eval_drill
from mem_agent.tests.faults.faults import ENGINE_KILLED, TRAINER_KILLED

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3600)]


def test_an_evaluation_with_faults_has_the_rows_of_an_unbroken_one():
    eval_drill([ENGINE_KILLED, TRAINER_KILLED])
