"""Ray: a head of our own or a cluster that runs already, and one job on it.

Invariants:
- only what was started here is stopped: our head with all its processes when the launcher ends in any way (see
  ``system/processes.py``), our job when the launcher is told to stop; a joined cluster goes on;
- the job's state decides how the launcher ends, not the log stream, which may break overnight;
- the head's job server listens on 127.0.0.1: whoever reaches it may run anything.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..config import Config, ConfigError
from ..system.errors import MemAgentError
from ..system.processes import ChildProcess
from .ray_api import NotKnown, machines, ray_api
from .remote_env import is_secret

logger = logging.getLogger("mem_agent")

RAY = [sys.executable, "-m", "ray.scripts.scripts"]
_POLL_S = 5.0
_LOST_AFTER_S = 600.0


class JobError(MemAgentError):
    """The job failed, or its cluster is gone; the message says where its log is."""


def head_command(config: Config, gpus: int) -> list[str]:
    return [
        *RAY, "start", "--head", "--block", "--disable-usage-stats",
        "--node-ip-address", config.master_addr,
        "--port", str(config.ray_port),
        "--num-gpus", str(gpus),
        "--dashboard-host", "127.0.0.1",
        "--dashboard-port", str(config.ray_dashboard_port),
        # Its default is one number for all clusters of a machine: a second one could run no job.
        "--dashboard-agent-listen-port", str(config.ray_dashboard_port + 1),
    ]


def worker_command(config: Config, gpus: int) -> list[str]:
    """What the other machines of a cluster run."""
    address = f"{config.master_addr}:{config.ray_port}"
    return ["ray", "start", "--block", "--disable-usage-stats", "--address", address, "--num-gpus", str(gpus)]


def job_address(config: Config) -> str:
    return config.ray_address or f"http://127.0.0.1:{config.ray_dashboard_port}"


def submit_command(config: Config, job: str, runtime_env: Path, command: Sequence[str]) -> list[str]:
    return [
        *RAY, "job", "submit", "--address", job_address(config), "--submission-id", job,
        "--runtime-env", str(runtime_env), "--", *command,
    ]


@contextmanager
def cluster(config: Config, gpus: int, log: Path, tokens: Path) -> Iterator[None]:
    """A Ray cluster with NUM_NODES machines of ``gpus`` GPUs for as long as the block lasts.

    Should this process be killed, the folder ``tokens`` goes with the head.
    """
    if config.ray_address:
        yield
        return
    # Workers inherit the head's environment.
    environment = {name: value for name, value in os.environ.items() if not is_secret(name)}
    head = ChildProcess("ray head", head_command(config, gpus), environment, log, cleanup=tokens)
    try:
        _wait_for_machines(config, gpus, head)
        yield
    finally:
        head.stop(grace_s=30.0)


def _wait_for_machines(config: Config, gpus: int, head: ChildProcess) -> None:
    if config.num_nodes > 1:
        logger.info("on each of the other %d machines run: %s", config.num_nodes - 1,
                    " ".join(worker_command(config, gpus)))
    deadline, told = time.monotonic() + config.ray_start_timeout, 0.0
    while True:
        if head.exit_code is not None:
            raise JobError(f"the Ray head did not start; see {head.log_path}")
        try:
            found = [machine for machine in machines(job_address(config)) if machine.total >= gpus]
        except ConfigError:
            found = []
        if len(found) >= config.num_nodes:
            return
        if time.monotonic() > deadline:
            raise JobError(
                f"{len(found)} of {config.num_nodes} machines with {gpus} GPUs have joined Ray after "
                f"RAY_START_TIMEOUT={config.ray_start_timeout:g} s; see {head.log_path}"
            )
        if time.monotonic() - told > 30:
            told = time.monotonic()
            logger.info("Ray: %d of %d machines are there", len(found), config.num_nodes)
        time.sleep(0.5)


def run_job(config: Config, job: str, runtime_env: Path, command: Sequence[str]) -> None:
    """Submit, show the job's log, and wait for its end; a KeyboardInterrupt stops the job first.

    Raises:
        JobError: it failed or was stopped, or the cluster does not answer any more.
    """
    address = job_address(config)
    shown = subprocess.Popen(submit_command(config, job, runtime_env, command), stdin=subprocess.DEVNULL,
                             start_new_session=True)
    try:
        code = shown.wait()
        state, message = _wait_for_end(address, job, code)
    except KeyboardInterrupt:
        logger.info("stopping job %s", job)
        shown.kill()  # first, so that it cannot submit any more
        _stop(address, job)
        raise
    finally:
        shown.kill()
        shown.wait()
    if state != "SUCCEEDED":
        raise JobError(f"job {job} {state}: {' '.join(message.split())[-300:]}; its log is above")


def _wait_for_end(address: str, job: str, submit_code: int) -> tuple[str, str]:
    """(state, message) once it is final."""
    lost_since, seen = None, False
    while True:
        try:
            info = ray_api(address, f"/api/jobs/{job}")
        except ConfigError as error:
            lost_since = lost_since or time.monotonic()
            if (submit_code and not seen) or time.monotonic() - lost_since > _LOST_AFTER_S:
                raise JobError(f"job {job}: {error}") from None
        else:
            lost_since, seen = None, True
            if info["status"] in ("SUCCEEDED", "FAILED", "STOPPED"):
                return info["status"], info.get("message") or ""
        time.sleep(_POLL_S)


def _stop(address: str, job: str) -> None:
    """Ask the job to end and wait a minute for it."""
    try:
        if not _asked_to_stop(address, job):
            logger.info("job %s had not been submitted yet", job)
            return
        for _ in range(60):
            if ray_api(address, f"/api/jobs/{job}")["status"] in ("SUCCEEDED", "FAILED", "STOPPED"):
                return
            time.sleep(1)
        logger.warning("job %s has not stopped within a minute", job)
    except ConfigError as error:
        logger.warning("job %s could not be stopped: %s", job, error)


def _asked_to_stop(address: str, job: str) -> bool:
    """False if the cluster does not know the job, even after the time that a submission under way may take."""
    for _ in range(5):
        try:
            ray_api(address, f"/api/jobs/{job}/stop", method="POST")
            return True
        except NotKnown:
            time.sleep(1)
    return False
