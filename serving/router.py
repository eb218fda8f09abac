"""The vLLM router in front of the engines: one address for generation, requests of one trajectory to one engine.

The router starts empty and only learns of engines whose weights were verified; a worker that it finds again by its own
health check would come back with stale weights, so replaced engines get a new port and are removed here first.

Requests with one ``X-Session-ID`` go to one engine, so those that share a key find its prefix cache
(``rollout_client``). A new key goes to the engine with the fewest bound keys. A key stays bound until the client ends
it, its engine is gone, or two hours have passed since its last request. If keys were never ended, the counts would
show past load, and fast and slow engines would get new keys in equal numbers. Keys cost 0.2 KB each (79 MB before, 119
MB after 200,000 keys). A consistent hash would put 4 groups on 2 engines as 3 and 1, or worse, five times of eight.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..rollout_client import TIMEOUT_S
from ..system.processes import FleetError
from ..system.python_command import python_module
from .control import ControlClient

ADMIT_TIMEOUT_S = 60
REQUEST_TIMEOUT_S = int(TIMEOUT_S)
"""For one generation request; the router's flag takes whole seconds."""


class RouterError(FleetError):
    """The router refused a call: the message names call and answer."""


def router_command(port: int, metrics_port: int) -> list[str]:
    """The command line of a router without workers on 127.0.0.1."""
    return [
        *python_module("vllm_router.launch_router"),
        "--host", "127.0.0.1", "--port", str(port),
        "--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port),
        "--policy", "sticky_least_loaded", "--log-level", "warning",
        # A hung engine is never retried by the router: its requests end by this clock.
        "--request-timeout-secs", str(REQUEST_TIMEOUT_S),
        # Tolerant of an engine that is slow under load, quick enough that new requests avoid a dead one.
        "--health-check-interval-secs", "2", "--health-check-timeout-secs", "5",
        "--health-failure-threshold", "2", "--health-success-threshold", "1",
        "--worker-startup-timeout-secs", str(ADMIT_TIMEOUT_S), "--worker-startup-check-interval", "1",
        # Two tries move a request from a dead engine to a living one; waiting longer is the client's business.
        "--retry-max-retries", "2", "--retry-initial-backoff-ms", "100", "--retry-max-backoff-ms", "1000",
        # The default keeps a circuit open for a minute: with one engine that is a minute of refused requests.
        "--cb-failure-threshold", "5", "--cb-success-threshold", "1", "--cb-timeout-duration-secs", "5",
        "--max-concurrent-requests", "32768", "--queue-size", "32768",
    ]


def router_environment(base: Mapping[str, str]) -> dict[str, str]:
    """``base`` without a proxy for the local engines."""
    return {**base, "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}


class RouterAdmin(ControlClient):
    """The calls to the router at ``url``."""

    kind = "router"
    error = RouterError

    async def alive(self, timeout_s: float = 5.0) -> bool:
        """Whether the router itself answers, whatever its workers do."""
        return await self.answers("/liveness", timeout_s)

    async def add_worker(self, worker_url: str) -> None:
        """Admit an engine; returns once the router has seen it healthy."""
        await self.call("POST", "/add_worker", timeout_s=ADMIT_TIMEOUT_S + 10, params={"url": worker_url})

    async def remove_worker(self, worker_url: str) -> None:
        """Send nothing more to an engine; an unknown one is no error."""
        await self.call("POST", "/remove_worker", params={"url": worker_url})

    async def workers(self) -> list[str]:
        listed: list[str] = (await self.call("GET", "/list_workers"))["urls"]
        return listed
