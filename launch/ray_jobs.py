"""One job on a Ray cluster, by its job server (``job_server.py``).

Invariants:
- the job's state decides how the launcher ends, not its log's stream, which may break overnight;
- an interrupt stops our job, and nothing else of the cluster;
- a launcher stops what one before it has left in its SAVE_PATH, if it can tell that this one is gone.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import re
import secrets
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from ray.job_submission import JobDetails

from ..system.atomic_file import appending, set_apart
from ..system.errors import MemAgentError
from ..system.own_folder import machine
from ..system.signals import run_stoppable
from .job_server import NO_ANSWER, JobServer
from .machine import TokenRefused

logger = logging.getLogger("mem_agent")

_POLL_S = 5.0
_LOST_AFTER_S = 600.0
_LOOK_S, _LAST_WORDS_S = 30.0, 30.0
"""Between looks at the job while its log comes, and what the log has after the job's end to come to its own."""
_RETRY_S = 1.0
_NO_AGENT = "No available agent"
"""Ray's answer (dashboard/modules/job/job_head.py) to a job that it has kept for 10 s and passed to nobody."""


def earlier_jobs(address: str, save_path: str) -> list[str]:
    """Those that launchers of this pack have begun, and that still train in the folder, or in one that another machine
    or container calls the same: one that is killed leaves its job to a joined cluster.

    Raises:
        MemAgentError: they cannot be had.
    """
    try:
        jobs = JobServer(address).list_jobs()
    except TokenRefused:
        raise
    except NO_ANSWER as error:
        raise MemAgentError(f"RAY_ADDRESS={address}: its jobs cannot be listed: {_one_line(error)}") from None
    named = ((job.submission_id or "", job.entrypoint) for job in jobs if not job.status.is_terminal())
    return [name for name, entrypoint in named if _OURS.fullmatch(name) and _saves_in(entrypoint, save_path)]


_OURS = re.compile(r"mem_agent-[0-9]{8}-[0-9]{6}(?:-([0-9a-f]{1,24}))?-[0-9a-f]{1,24}")
"""Without the group, which says where its launcher is, the name is of an earlier version."""


@contextmanager
def new_job() -> Iterator[str]:
    """A name by which ``earlier_jobs`` knows that a launcher of this pack gave it. A socket has it as well, until the
    block or the process ends: by that others see whether the launcher lives."""
    job = f"mem_agent-{time.strftime('%Y%m%d-%H%M%S')}-{_here()}-{secrets.token_hex(4)}"
    with socket.socket(socket.AF_UNIX) as claim:
        claim.bind(f"\0{job}")
        yield job


def _here() -> str:
    """Of all processes that see each other's sockets, those of other containers among them; others have another."""
    return f"{machine()}{os.stat('/proc/self/ns/net').st_ino:x}"


def _is_left(job: str) -> bool:
    """Whether the launcher of this one of ``earlier_jobs`` is gone, as far as can be seen here. That it does not hold
    ``save_lock`` says nothing: its folder may be another one of the same name, or its disk know no locks."""
    named = _OURS.fullmatch(job)
    if named is None or named[1] != _here():
        return False
    with socket.socket(socket.AF_UNIX) as claim:
        try:
            claim.bind(f"\0{job}")
        except OSError:
            return False
    return True


_LONGEST_COMMAND = 2**17
"""Of a job that runs: its shell has it as one argument, and Linux takes no longer one. The parser's time grows with
the square of a word."""


def _saves_in(entrypoint: str, save_path: str) -> bool:
    """Of a job that may be anybody's."""
    if len(entrypoint) > _LONGEST_COMMAND:
        return False
    try:
        folders = {value for flag, value in pairwise(shlex.split(entrypoint)) if flag == "--save"}
        return os.path.realpath(save_path) in map(os.path.realpath, folders)
    except ValueError:  # open quotes, or a NUL in a path
        return False


def stop_earlier_jobs(address: str, save_path: str) -> None:
    """So that one job trains in the folder. Raises MemAgentError where one goes on, or nobody knows."""
    for job in earlier_jobs(address, save_path):
        by_hand = f"ray job stop --address {address} {job}"
        if not _is_left(job):
            raise MemAgentError(f"SAVE_PATH={save_path}: job {job} of {address} trains there, and its launcher may "
                                f"live; if you know that it does not, stop the job: {by_hand}")
        logger.info("job %s still trains in %s, and its launcher is gone: stopping it", job, save_path)
        if not _stop(JobServer(address), job):
            raise MemAgentError(f"SAVE_PATH={save_path}: job {job} of {address} still trains there; stop it: "
                                f"{by_hand}")


def run_job(
    address: str, job: str, runtime_env: Path, command: Sequence[str], log: Path, show: Callable[[str], None],
    patience_s: float, head_port: int = 0,
) -> None:
    """Submit, follow the job's log, and wait for its end; a KeyboardInterrupt stops the job first.

    Args:
        patience_s: how long the cluster may take to have an agent that starts jobs.
        log: the file that keeps the job's log.
        show: called with each piece of it as it comes, of one line or more.
        head_port: of the cluster's head on this machine, where that is our own.

    Raises:
        MemAgentError: it was not accepted, failed or was stopped, or the cluster does not answer any more.
    """
    server = JobServer(address, head_port)
    environment = yaml.safe_load(runtime_env.read_text())
    began = log.stat().st_size if log.is_file() else 0
    try:
        _submit(server, job, shlex.join(command), environment, patience_s)
        run_stoppable(_follow_log_to_end(server, job, log, show))
        end = _wait_for_end(server, job)
    except NO_ANSWER as error:
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


async def _follow_log_to_end(server: JobServer, job: str, log: Path, show: Callable[[str], None]) -> None:
    """As ``_follow_log``, and no longer than the job runs: a stream of which the other end is gone says nothing."""
    following = asyncio.create_task(_follow_log(server, job, log, show))
    ended = asyncio.create_task(_ended(server, job))
    try:
        await asyncio.wait([following, ended], return_when=asyncio.FIRST_COMPLETED)
        if not following.done():
            await asyncio.wait([following], timeout=_LAST_WORDS_S)
        if not following.done():
            logger.warning("the log of job %s stands still and breaks off here; the job has ended, or is lost", job)
    finally:
        for task in (following, ended):
            task.cancel()
        results = await asyncio.gather(following, ended, return_exceptions=True)
    for failed in results:
        if isinstance(failed, Exception):
            raise failed


async def _ended(server: JobServer, job: str) -> None:
    """Return when the job has ended, or nothing has been heard of it for too long."""
    answered = time.monotonic()
    while time.monotonic() - answered <= _LOST_AFTER_S:
        await asyncio.sleep(_LOOK_S)
        with suppress(*NO_ANSWER):
            details = await asyncio.to_thread(server.get_job_info, job)
            answered = time.monotonic()
            if details.status.is_terminal():
                return


async def _follow_log(server: JobServer, job: str, log: Path, show: Callable[[str], None]) -> None:
    """Show the job's log, and add it to the file ``log``, until the job ends or the connection breaks."""
    try:
        set_apart(log)
        with io.BufferedWriter(appending(log)) as kept:
            async for lines in server.tail_job_logs(job):
                show(lines)
                kept.write(lines.encode())
                kept.flush()
    except (aiohttp.ClientError, *NO_ANSWER) as error:
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
        except NO_ANSWER as error:
            if time.monotonic() - answered > _LOST_AFTER_S:
                raise MemAgentError(f"job {job}: its cluster does not answer any more: {_one_line(error)}") from None
        time.sleep(_POLL_S)


def _stop(server: JobServer, job: str) -> bool:
    """Ask the job to end and wait a minute for it; whether it has ended."""
    for second in range(60):
        try:
            server.stop_job(job)
            if server.get_job_info(job).status.is_terminal():
                return True
        except NO_ANSWER as error:
            if second >= 4:  # by then a submission that was under way is known
                logger.warning("job %s could not be stopped: %s", job, _one_line(error))
                return False
        time.sleep(1)
    logger.warning("job %s has not stopped within a minute", job)
    return False


_RAISED = re.compile(r"^((?:(?:\w+\.)+[A-Z]\w*|\w*(?:Error|Exception)): .+)$", re.MULTILINE)
"""The last line of a traceback: the error's class and what it says."""
_TAIL_BYTES = 2**18
_LOGS = ", last available logs"


def _reason(message: str, log: Path, began: int) -> str:
    """What the job raised last, by Ray's ``message``, or else its log from byte ``began`` on: the message has its last
    ten lines, which are often those that its workers said meanwhile. Where nothing was raised, what the message says
    before them."""
    said = message
    if log.is_file():
        with log.open("rb") as file:
            file.seek(max(began, log.stat().st_size - _TAIL_BYTES))
            said += "\n" + file.read().decode(errors="replace")
    raised = _RAISED.findall(message) or _RAISED.findall(said)  # the log may have broken off before
    return " ".join(raised[-1].split())[:400] if raised else _one_line(message.partition(_LOGS)[0])


def _one_line(error: Exception | str) -> str:
    """The end of it: Ray's errors quote whole answers."""
    return " ".join(str(error).split())[-300:]
