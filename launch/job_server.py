"""Ray's job server, asked through Ray's own client; here and in ``ray_jobs`` alone is Ray imported.

Invariants:
- it is never asked through the environment's proxy;
- each request has its end within a minute, and each answer within a bound: what takes longer, or is longer, counts as
  lost;
- no redirect is followed, and no answer is read in a charset of its own choice;
- it is asked with the user's Ray token, wherever Ray looks for that: a head started by a user who has one wants it;
- a head of our own is asked while this user listens on its port: whoever takes it from a dead one gets no token.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import aiohttp
import requests
import urllib3
from ray import exceptions
from ray.job_submission import JobSubmissionClient

from ..system.ports import listening_users
from ..system.printable import one_line
from ..system.redirects import Redirected, refusing_redirects
from .layout import MachineGpus
from .machine import TokenRefused

try:
    # `ray start --head` does this by itself, Ray's client for jobs does not.
    from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
except ImportError:  # an older Ray, which uses tokens only where RAY_AUTH_MODE says so
    def maybe_enable_token_auth_if_token_available(warn_if_disabled: bool = True) -> bool:
        return False

NO_ANSWER = (OSError, RuntimeError, ValueError, TypeError)
"""Of Ray's client where the server cannot be reached (errors of ``requests`` are OSErrors), refuses, or something
else answers, such as a proxy."""
_TIMEOUT_S = 60.0
_MOST_BYTES = 2**26
"""Of an answer; a cluster of 10,000 machines has a third of it."""
_NO_END = "its answer has no end after {:g} s"

_BROKEN: dict[int | None, str] = {
    aiohttp.WSCloseCode.ABNORMAL_CLOSURE: "the connection was lost",
    aiohttp.WSCloseCode.MESSAGE_TOO_BIG: "a line of more than 4 MB",
}
_REFUSED: Any = getattr(exceptions, "AuthenticationError", ())
"""What newer clients raise where older ones return the answer."""


class JobServer(JobSubmissionClient):
    """Ray's client, with the user's token, a limit on each request and without a proxy."""

    def __init__(self, address: str, head_port: int = 0) -> None:
        """``head_port``: on this machine, of a head of our own."""
        self._head_port = head_port
        maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
        super().__init__(address)

    def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
        options |= {"timeout": _TIMEOUT_S, "proxies": {"no_proxy": "*"}, "hooks": {"response": _read_within_bound},
                    "allow_redirects": False}
        self._see_head()
        try:
            answer = _within_time(partial(super()._do_request, method, endpoint, **options))
        except _REFUSED:
            raise self._refusal() from None
        if answer.status_code in (401, 403):
            raise self._refusal()
        return answer

    def _see_head(self) -> None:
        """Before each connection. Raises ConnectionError."""
        users = listening_users(self._head_port) if self._head_port else None
        if users is not None and os.geteuid() not in users:
            raise ConnectionError(f"the Ray head of this run is gone from port {self._head_port}")

    def _refusal(self) -> TokenRefused:
        remedy = "set RAY_AUTH_TOKEN_PATH to a file with the cluster's, which `ray get-auth-token` prints on its head"
        mode = os.environ.get("RAY_AUTH_MODE", "")
        if any(name.lower() == "authorization" for name in self._headers):
            return TokenRefused(f"{self._address}: Ray's job server does not accept this user's token; {remedy}")
        if mode not in ("", "token"):
            remedy = f"RAY_AUTH_MODE={mode} keeps it back, unset that"
        return TokenRefused(f"{self._address}: Ray's job server wants a token, and none was sent; {remedy}")

    async def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        """Ray's own follows redirects. Raises RuntimeError where the stream breaks off, or whatever aiohttp does."""
        self._see_head()
        traces = [refusing_redirects(aiohttp.TraceConfig())]
        async with aiohttp.ClientSession(headers=self._headers, trace_configs=traces) as session:
            # No heartbeat: Ray's server answers no ping, and a job may say nothing for an hour.
            stream = await session.ws_connect(f"{self._address}/api/jobs/{job_id}/logs/tail")
            async for message in stream:
                if message.type is aiohttp.WSMsgType.TEXT:
                    yield message.data
            if stream.close_code != aiohttp.WSCloseCode.OK:
                raise RuntimeError(_BROKEN.get(stream.close_code, f"closed with code {stream.close_code}"))

    def data(self, path: str) -> Any:
        """What the cluster's state pages are made of."""
        answer = self._do_request("GET", path)
        answer.raise_for_status()
        return answer.json()["data"]


def _within_time(ask: Callable[[], Any]) -> Any:
    """What ``ask`` gives or raises. ``requests`` has a limit for each piece that comes, none for the whole of the
    headers, of what a server says before them, and of finding it. So this has a thread, which is waited for, and then
    left to the end of the process. Raises RequestException.
    """
    answer: Future[Any] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="job server", daemon=True).start()
    try:
        return answer.result(_TIMEOUT_S)
    except TimeoutError:
        raise requests.RequestException(_NO_END.format(_TIMEOUT_S)) from None


def _read_within_bound(answer: requests.Response, **_: Any) -> None:
    """Before ``requests`` reads all of it. Raises RequestException."""
    if answer.is_redirect:
        answer.close()
        said = one_line(str(Redirected(answer.status_code, answer.headers["Location"])), 250)  # all that is told
        raise requests.RequestException(said)
    body, deadline = bytearray(), time.monotonic() + _TIMEOUT_S
    read = getattr(answer.raw, "read1", answer.raw.read)  # an older urllib3 waits for all that it is asked for
    try:
        while piece := read(2**16, decode_content=True):
            body += piece
            if len(body) > _MOST_BYTES:
                raise requests.RequestException(f"its answer is longer than {_MOST_BYTES} bytes")
            if time.monotonic() > deadline:
                raise requests.RequestException(_NO_END.format(_TIMEOUT_S))
    except urllib3.exceptions.HTTPError as error:
        raise requests.RequestException(str(error)) from None
    finally:
        answer.close()
    answer._content, answer.encoding = bytes(body), "utf-8"


def machines(address: str) -> list[MachineGpus]:
    """The living machines of the cluster; raises whatever Ray's client makes of an answer that is not Ray's."""
    server = JobServer(address)
    nodes = server.data("/api/v0/nodes?detail=true&limit=10000")["result"]["result"]
    used = _used_gpus(server)
    found = []
    for node in (node for node in nodes if node["state"] == "ALIVE"):
        total = node["resources_total"].get("GPU", 0)
        busy = used.get(node["node_id"], used.get(node.get("node_ip"), 0))
        found.append(MachineGpus(int(total), int(total - busy)))
    return found


def _used_gpus(server: JobServer) -> dict[str, float]:
    """GPUs in use by node id or address, as Ray's autoscaler last counted; nothing where none runs."""
    try:
        usage = server.data("/api/cluster_status")["clusterStatus"]["loadMetricsReport"]["usageByNode"]
        return {node: of.get("GPU", [0.0])[0] for node, of in usage.items()}
    except (OSError, KeyError, TypeError, AttributeError):
        return {}
