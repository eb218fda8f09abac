"""The ports of a fleet are nobody else's, from before its servers listen until they are forgotten."""

import asyncio
import socket

import pytest

from mem_agent.serving.router import RouterAdmin
from mem_agent.system.ports import hold_port
from mem_agent.system.processes import FleetError
from mem_agent.tests.helpers.stub_fleet import make_fleet, model, port_of, stubs

__all__ = ["model", "stubs"]


def is_free(port: int) -> bool:
    """To another run that looks for one."""
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def is_held(port: int) -> bool:
    held = hold_port(port)
    if held is not None:
        held.close()
    return held is None


def is_answered(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.asyncio
async def test_the_ports_of_a_fleet_are_nobody_elses_while_it_lives_though_its_servers_die(stubs, model):
    async with make_fleet(model) as running:
        was = int(port_of(running.engine_urls[0]))
        for process in (running._router, running._engines[0].process):
            process.stop(0.0)
        assert not (is_free(running.port) or is_free(was))
        assert await running.ensure_alive() == 2
        now = int(port_of(running.engine_urls[0]))
        assert was != now and is_held(now) and is_held(running.port) and not is_held(was)
        assert not (is_free(running.port) or is_free(now))
    assert not is_held(now) and not is_held(running.port)


@pytest.mark.asyncio
async def test_an_engines_port_is_held_until_the_router_has_forgotten_it(stubs, model, monkeypatch):
    async with make_fleet(model) as running:
        was, seen, workers = running._engines[0].port, [], RouterAdmin.workers
        running._engines[0].process.stop(0.0)

        async def looked(router):
            seen.append(is_held(was))
            return await workers(router)

        monkeypatch.setattr(RouterAdmin, "workers", looked)
        assert await running.ensure_alive() == 1
        assert seen == [True] and not is_held(was)


@pytest.mark.asyncio
async def test_a_start_that_fails_holds_no_port(stubs, model, monkeypatch):
    running = make_fleet(model, num_engines=2)

    async def fails_once_an_engine_is_up():
        while not any(map(is_answered, running._used)):
            await asyncio.sleep(0.05)
        raise FleetError("the router fails")

    monkeypatch.setattr(running, "_start_router", fails_once_an_engine_is_up)
    with pytest.raises(FleetError, match="the router fails"):
        async with running:
            pass
    assert running._used and not any(map(is_held, running._used))
