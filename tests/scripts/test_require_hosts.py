"""``--require-hosts``: a test that lacks a checkout fails, where it otherwise skips."""

from types import SimpleNamespace

import pytest

from mem_agent.tests.conftest import pytest_runtest_makereport


@pytest.mark.parametrize("required,reason,outcome", [
    (False, "SLIME_ROOT is not set", "skipped"), (True, "SLIME_ROOT is not set", "failed"),
    (True, "no GPU", "skipped"),
])
def test_a_missing_checkout(required, reason, outcome):
    item = SimpleNamespace(config=SimpleNamespace(getoption=lambda name: required))
    report = SimpleNamespace(skipped=True, outcome="skipped", longrepr=("test_hosts.py", 1, reason))
    hook = pytest_runtest_makereport(item)
    next(hook)
    with pytest.raises(StopIteration) as end:
        hook.send(report)
    assert end.value.value.outcome == outcome
