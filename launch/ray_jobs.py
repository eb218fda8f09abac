"""One job on a Ray cluster, through Ray's own client; the only module here that imports Ray.

Invariants:
- the job's state decides how the launcher ends, not its log's stream, which may break overnight;
- an interrupt stops our job, and nothing else of the cluster;
- the job server is never asked through the environment's proxy, nor without an end to waiting;
- an answer is read within a bound: what is longer counts as lost;
- no redirect is followed, and no answer is read in a charset of its own choice;
- it is asked with the user's Ray token, wherever Ray looks for that: a head started by a user who has one wants it.
"""

from __future__ import annotations

import io
import logging
import os
import re
import shlex
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import requests
import yaml
from ray import exceptions
from ray.job_submission import JobDetails, JobSubmissionClient

from ..system.atomic_file import appending
from ..system.errors import MemAgentError
from ..system.printable import one_line
from ..system.redirects import Redirected, refusing_redirects
from ..system.signals import run_stoppable
from .layout import MachineGpus
from .machine import TokenRefused

try:
    # `ray start --head` does this by itself, Ray's client for jobs does not.
    from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
except ImportError:  # an older Ray, which uses tokens only where RAY_AUTH_MODE says so
    def maybe_enable_token_auth_if_token_available(warn_if_disabled: bool = True) -> bool:
        return False

logger = logging.getLogger("mem_agent")

_NO_ANSWER = (OSError, RuntimeError, ValueError, TypeError)
"""Of Ray's client where the server cannot be reached (errors of ``requests`` are OSErrors), refuses, or something
else answers, such as a proxy."""
_TIMEOUT_S = 60.0
_MOST_BYTES = 2**26
"""Of an answer; a cluster of 10,000 machines has a third of it."""
_POLL_S = 5.0
_LOST_AFTER_S = 600.0
_RETRY_S = 1.0
_NO_AGENT = "No available agent"
"""Ray's answer (dashboard/modules/job/job_head.py) to a job that it has kept for 10 s and passed to nobody."""


_REFUSED: Any = getattr(exceptions, "AuthenticationError", ())
"""What newer clients raise where older ones return the answer."""


class JobServer(JobSubmissionClient):
    """Ray's client, with the user's token, a limit on each request and without a proxy."""

    def __init__(self, address: str) -> None:
        maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
        super().__init__(address)

    def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
        options |= {"timeout": _TIMEOUT_S, "proxies": {"no_proxy": "*"}, "hooks": {"response": _read_within_bound},
                    "allow_redirects": False}
        try:
            answer = super()._do_request(method, endpoint, **options)
        except _REFUSED:
            raise self._refusal() from None
        if answer.status_code in (401, 403):
            raise self._refusal()
        return answer

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
        traces = [refusing_redirects(aiohttp.TraceConfig())]
        async with aiohttp.ClientSession(headers=self._headers, trace_configs=traces) as session:
            stream = await session.ws_connect(f"{self._address}/api/jobs/{job_id}/logs/tail")
            async for message in stream:
                if message.type is aiohttp.WSMsgType.TEXT:
                    yield message.data
            if stream.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE:
                raise RuntimeError("the connection was lost")

    def data(self, path: str) -> Any:
        """What the cluster's state pages are made of."""
        answer = self._do_request("GET", path)
        answer.raise_for_status()
        return answer.json()["data"]


def _read_within_bound(answer: requests.Response, **_: Any) -> None:
    """Before ``requests`` reads all of it. Raises RequestException."""
    if answer.is_redirect:
        answer.close()
        said = one_line(str(Redirected(answer.status_code, answer.headers["Location"])), 250)  # all that is told
        raise requests.RequestException(said)
    body = bytearray()
    for piece in answer.iter_content(2**16):
        body += piece
        if len(body) > _MOST_BYTES:
            answer.close()
            raise requests.RequestException(f"its answer is longer than {_MOST_BYTES} bytes")
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


def run_job(
    address: str, job: str, runtime_env: Path, command: Sequence[str], log: Path, show: Callable[[str], None],
    patience_s: float,
) -> None:
    """Submit, follow the job's log, and wait for its end; a KeyboardInterrupt stops the job first.

    Args:
        patience_s: how long the cluster may take to have an agent that starts jobs.
        log: the file that keeps the job's log.
        show: called with each piece of it as it comes, of one line or more.

    Raises:
        MemAgentError: it was not accepted, failed or was stopped, or the cluster does not answer any more.
    """
    server = JobServer(address)
    environment = yaml.safe_load(runtime_env.read_text())
    began = log.stat().st_size if log.is_file() else 0
    try:
        _submit(server, job, shlex.join(command), environment, patience_s)
        run_stoppable(_follow_log(server, job, log, show))
        end = _wait_for_end(server, job)
    except _NO_ANSWER as error:
        _stop(server, job)  # the submission may have arrived all the same
        raise MemAgentError(f"job {job} was not accepted: {_one_line(error)}") from None
    except KeyboardInterrupt:
        logger.info("stopping job %s", job)
        _stop(server, job)
        raise
    if end.status != "SUCCEEDED":
        raise MemAgentError(f"job {job} {end.status}: {_reason(end.message or '', log, began)}; its log is above")


def _submit(server: JobServer, job: str, entrypoint: str, runtime_env: dict[str, Any], patience_s: float) -> None:
    """Submit until there is an agent to take it: a machine joins before its agent is up, by a minute under load."""
    deadline, said = time.monotonic() + patience_s, False
    while True:
        try:
            server.submit_job(entrypoint=entrypoint, submission_id=job, runtime_env=runtime_env)
            return
        except RuntimeError as error:
            if _NO_AGENT not in str(error) or time.monotonic() > deadline:
                raise
        if not said:
            logger.info("Ray has no agent yet that starts jobs; job %s is offered again for %g s", job, patience_s)
        said = True
        time.sleep(_RETRY_S)


async def _follow_log(server: JobServer, job: str, log: Path, show: Callable[[str], None]) -> None:
    """Show the job's log, and add it to the file ``log``, until the job ends or the connection breaks."""
    try:
        with io.BufferedWriter(appending(log)) as kept:
            async for lines in server.tail_job_logs(job):
                show(lines)
                kept.write(lines.encode())
                kept.flush()
    except (aiohttp.ClientError, *_NO_ANSWER) as error:
        logger.warning("the log of job %s breaks off here (%s); waiting for its end", job, _one_line(error))


def _wait_for_end(server: JobServer, job: str) -> JobDetails:
    """Its final state; the cluster may be away for ten minutes meanwhile."""
    answered = time.monotonic()
    while True:
        try:
            details = server.get_job_info(job)
            answered = time.monotonic()
            if details.status.is_terminal():
                return details
        except _NO_ANSWER as error:
            if time.monotonic() - answered > _LOST_AFTER_S:
                raise MemAgentError(f"job {job}: its cluster does not answer any more: {_one_line(error)}") from None
        time.sleep(_POLL_S)


def _stop(server: JobServer, job: str) -> None:
    """Ask the job to end and wait a minute for it."""
    for second in range(60):
        try:
            server.stop_job(job)
            if server.get_job_info(job).status.is_terminal():
                return
        except _NO_ANSWER as error:
            if second >= 4:  # by then a submission that was under way is known
                logger.warning("job %s could not be stopped: %s", job, _one_line(error))
                return
        time.sleep(1)
    logger.warning("job %s has not stopped within a minute", job)


_RAISED = re.compile(r"^((?:(?:\w+\.)+[A-Z]\w*|\w*(?:Error|Exception)): .+)$", re.MULTILINE)
"""The last line of a traceback: the error's class and what it says."""
_TAIL_BYTES = 2**18
_LOGS = ", last available logs"


def _reason(message: str, log: Path, began: int) -> str:
    """What the job raised last, by its log from byte ``began`` on: Ray's ``message`` has its last ten lines, which are
    often those that its workers said meanwhile. Where nothing was raised, what the message says before them."""
    said = message
    if log.is_file():
        with log.open("rb") as file:
            file.seek(max(began, log.stat().st_size - _TAIL_BYTES))
            said += "\n" + file.read().decode(errors="replace")
    raised = _RAISED.findall(said)
    return " ".join(raised[-1].split())[:400] if raised else _one_line(message.partition(_LOGS)[0])


def _one_line(error: Exception | str) -> str:
    """The end of it: Ray's errors quote whole answers."""
    return " ".join(str(error).split())[-300:]
