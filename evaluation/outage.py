"""How long a server is waited for that stops answering, or turns requests away.

    connection lost, HTTP 5xx     one request asks for a token now and then, all others wait for what it learns
    HTTP 429                      each request waits as long as it is asked to, and is sent again

Invariants:
- a request waits ``EVAL_SERVER_WAIT`` seconds in all before it counts as failed. After a vain wait ``gone`` is true,
  and nobody waits again; with HTTP 429 a wait is vain only if nobody was answered meanwhile;
- a server is back when it gives a token: HTTP 200 is no answer, a body that can be read as a reply is one;
- a request that fails although the server answers others is tried again once, not for ever.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from ..agents.records import FailureKind, TurnFailed
from ..client.answer_body import BodyTooLong, beginning, most_bytes, whole_body
from ..client.engine_api import MALFORMED
from ..client.retry_after import seconds_asked
from ..client.server_session import NO_ANSWER, server_session
from ..system.bounded_json import loads
from ..system.printable import one_line
from ..system.redirects import Redirected

if TYPE_CHECKING:
    from .endpoint import EvalEndpoint

POLL_S = 2.0
PROBE_TIMEOUT_S = 60.0
TOO_MANY = 429


class Outage:
    """Whether the server answers, shared by all requests: one asks, the others wait for what it learns."""

    def __init__(self) -> None:
        self.gone = False
        """A wait for the server was in vain."""
        self.down_until = -math.inf
        """The last time at which the server was known not to answer."""
        self.answered_at = -math.inf
        """The last time at which it gave a reply."""
        self.limited = False
        """It is ``gone`` because it answered with HTTP 429 alone."""
        self._asking = asyncio.Lock()

    async def over_before(self, deadline: float, endpoint: EvalEndpoint) -> bool:
        """Whether the server answers before the deadline."""
        async with self._asking, server_session() as session:
            while not (await probe(session, endpoint)).is_up:
                if self.gone or time.monotonic() >= deadline:
                    self.give_up(limited=self.gone and self.limited)
                    return False
                await asyncio.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))
                self.down_until = time.monotonic()
            self.gone = False
            return time.monotonic() < deadline

    def give_up(self, *, limited: bool) -> None:
        self.gone, self.limited = True, limited


class ServerPatience:
    """Of one request: it waits EVAL_SERVER_WAIT in all, and tries once more with a server that answers others."""

    def __init__(self, endpoint: EvalEndpoint) -> None:
        self._endpoint = endpoint
        self._deadline = self._since = math.inf
        self._failed_while_up = False

    async def try_again(self, failure: TurnFailed, began: float) -> bool:
        self._since = min(self._since, began)
        if failure.kind is FailureKind.RATE_LIMITED:
            return await self._wait_turn(failure.wait)
        if failure.kind not in (FailureKind.CONNECTION, FailureKind.SERVER_ERROR) or self._failed_while_up:
            return False
        outage = self._endpoint.outage
        self._deadline = min(self._deadline, time.monotonic() + self._endpoint.server_wait)
        if not await outage.over_before(self._deadline, self._endpoint):
            return False
        self._failed_while_up = outage.down_until < began
        return True

    async def _wait_turn(self, asked: float) -> bool:
        """The server is there and takes no more requests for now."""
        outage, now = self._endpoint.outage, time.monotonic()
        self._deadline = min(self._deadline, now + self._endpoint.server_wait)
        wait = max(POLL_S, asked)
        if now + wait < self._deadline and not outage.gone:
            await asyncio.sleep(wait)
            return True
        if not outage.gone and outage.answered_at < self._since:
            outage.give_up(limited=True)
        return False


@dataclass(frozen=True, slots=True)
class Probe:
    """What became of the smallest request."""

    status: int
    """Of HTTP; 0 where nothing answers."""
    text: str
    """The beginning of the answer, or why there is none."""
    is_reply: bool = False
    """It is a reply in the endpoint's wording."""
    wait: float = 0.0
    """Seconds that the server asks to be left alone."""

    @property
    def is_up(self) -> bool:
        return self.is_reply or self.status == TOO_MANY


async def probe(session: aiohttp.ClientSession, endpoint: EvalEndpoint) -> Probe:
    body, timeout = endpoint.probe(), aiohttp.ClientTimeout(PROBE_TIMEOUT_S, connect=10)
    try:
        async with session.post(endpoint.url, json=body, headers=endpoint.headers(), timeout=timeout) as reply:
            parts, wait = reply.content.iter_any(), seconds_asked(reply.headers.get("Retry-After"))
            content = await (whole_body(parts, most_bytes(1)) if reply.status == 200 else beginning(parts))
            is_reply = reply.status == 200 and _is_reply(endpoint, content)
            return Probe(reply.status, told(endpoint, content.decode("utf-8", "replace")), is_reply, wait)
    except BodyTooLong as error:
        return Probe(200, str(error))
    except Redirected as error:
        return Probe(error.status, told(endpoint, str(error)))
    except NO_ANSWER as error:
        return Probe(0, told(endpoint, f"{type(error).__name__}: {error}"))


def told(endpoint: EvalEndpoint, said: str) -> str:
    """The beginning of what a server said, for a line of ours."""
    return one_line(endpoint.redacted(said), 200)


def _is_reply(endpoint: EvalEndpoint, content: bytes) -> bool:
    try:
        endpoint.parse_response(loads(content))
    except MALFORMED:
        return False
    return True


def gone_line(endpoint: EvalEndpoint) -> str:
    """What ended a run whose ``outage.gone`` is true."""
    within = f"within EVAL_SERVER_WAIT={endpoint.server_wait:g} s"
    if endpoint.outage.limited:
        return (f"{endpoint.base_url} answered nothing but HTTP 429, too many requests, {within}; lower "
                "MEM_CONCURRENCY, or wait: the same command continues")
    return f"{endpoint.base_url} stopped answering and did not come back {within}; the same command continues"
