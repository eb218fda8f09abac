"""Why a server counts as gone is what the line tells that ends the run."""

import asyncio
from types import SimpleNamespace

import pytest

from mem_agent.agents.records import FailureKind, TurnFailed
from mem_agent.evaluation import outage
from mem_agent.evaluation.outage import Outage, Probe, ServerPatience, gone_line

LOST, BUSY = (TurnFailed(kind, "") for kind in (FailureKind.CONNECTION, FailureKind.RATE_LIMITED))


@pytest.mark.parametrize("failures,told", [
    ([LOST], "stopped answering"), ([LOST, BUSY], "stopped answering"), ([BUSY], "nothing but HTTP 429"),
    ([BUSY, LOST], "nothing but HTTP 429"),
])
def test_the_line_has_the_first_reason(monkeypatch, failures, told):
    async def down(session, endpoint):
        return Probe(0, "refused")

    async def main():
        endpoint = SimpleNamespace(outage=Outage(), server_wait=0.0, base_url="http://x")
        for failure in failures:
            assert not await ServerPatience(endpoint).try_again(failure, began=0.0)
        return gone_line(endpoint)

    monkeypatch.setattr(outage, "probe", down)
    assert told in asyncio.run(main())


def test_a_server_that_is_back_and_lost_again_is_not_one_that_was_busy(monkeypatch):
    found = [Probe(200, "", is_reply=True), Probe(0, "refused")]

    async def probed(session, endpoint):
        return found.pop(0)

    async def main():
        endpoint = SimpleNamespace(outage=Outage(), server_wait=0.0, base_url="http://x")
        for failure in (BUSY, LOST, LOST):
            await ServerPatience(endpoint).try_again(failure, began=0.0)
        return gone_line(endpoint)

    monkeypatch.setattr(outage, "probe", probed)
    assert "stopped answering" in asyncio.run(main())
