"""slime's and vime's own train.py under faults, with the pack's hooks: what is lost is masked and counted.

    SLIME_ROOT=... VIME_ROOT=... MEGATRON_ROOT=... REHEARSAL_PYTHON=... pytest tests/faults/test_host_servers.py
"""

import pytest

from mem_agent.tests.faults.host_drill import LASTING_RUN, check_losses, drilled
from mem_agent.tests.helpers.host_checkout import HOSTS

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_what_fails_is_masked_and_counted_and_a_rollout_of_nothing_else_ends_the_run(host):
    _, found = drilled(host, LASTING_RUN)
    check_losses(found)
