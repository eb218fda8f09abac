"""Connections live as long as the host's event loop, so every check closes its own."""

import pytest

from mem_agent.rollout_client import close_clients
from mem_agent.tests.inside_host.host import NAME, http_utils, module


@pytest.fixture(autouse=True)
def closed_connections():
    async def close():
        await close_clients()
        if http_utils._http_client is not None:
            await http_utils._http_client.aclose()
            http_utils._http_client = None

    yield
    module("utils.async_utils").run(close())


@pytest.fixture
def logged(monkeypatch):
    """Every dict that the host would send to its trackers."""
    metrics = []
    place = "observability.logging_utils" if NAME == "slime" else "utils.logging_utils"
    monkeypatch.setattr(module(place), "log", lambda args, values, step_key: metrics.append(values))
    return metrics
