"""Ray: a head of our own or a running cluster, and the one job on it, through ``JobSubmissionClient``.

Only what was started here is stopped: our head with all its processes when the launcher ends in any way (see
``system/processes.py``); a joined cluster goes on. A head for one machine listens on loopback. The job's state decides
how the launcher ends, not the stream of its log, which may break overnight.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..config import Config, ConfigError
from ..system.errors import MemAgentError, reason_of
from ..system.processes import ChildProcess, ProcessError
from ..system.python_command import python_module
from ..system.server_url import is_loopback
from ..system.signals import run_stoppable
from ..system.text import one_line

logger = logging.getLogger("mem_agent")

RAY = python_module("ray.scripts.scripts")
RAY_PORTS = (6379, 8265)
"""Ports of the head and its job server (Ray's defaults); the dashboard agent gets the next one."""
_SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "ANSWER_KEY", "API_KEY", "OPENAI_API_KEY")
"""Keys for a joined cluster, which lacks our environment. Ray's dashboard shows them."""
_PASSED = ("NCCL_", "GLOO_", "HF_", "WANDB_", "VLLM_", "SGLANG_", "SGL_", "TRANSFORMERS_", "TORCH_", "PYTORCH_")
_KEPT_OUT = ("_TOKEN", "_KEY", "HF_CKPT", "TORCH_DIST")
_STARTS_WITHIN_S, _POLL_S, _LOST_AFTER_S, _STOPS_WITHIN_S = 600.0, 2.0, 600.0, 30.0
_STARTS = 3
"""Of a head: Ray gives its own processes 30 s, which a loaded machine may not keep."""


def without_proxy(env: Mapping[str, str], *hosts: str) -> dict[str, str]:
    """The variables by which requests to ``hosts`` and to this machine go past the user's proxy."""
    own = env.get("no_proxy") or env.get("NO_PROXY")
    value = ",".join(dict.fromkeys(["127.0.0.1", "localhost", *hosts, *([own] if own else [])]))
    return {"no_proxy": value, "NO_PROXY": value}


def worker_variables(env: Mapping[str, str], config: Config, python_path: str, *, nvlink: bool) -> dict[str, str]:
    """Variables for every process of the job. The user's settings of libraries win; the pack's own travel in its YAML;
    keys stay out, as Ray's dashboard shows a job's environment.
    """
    passed = {name: value for name, value in env.items() if name.startswith(_PASSED) and not name.endswith(_KEPT_OUT)}
    return {
        "PYTHONPATH": python_path,
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "NCCL_NVLS_ENABLE": str(int(nvlink)),
        "TENSORBOARD_DIR": str(Path(config.save_path) / "tensorboard"),
        "MASTER_ADDR": config.master_addr,
        **without_proxy(env, config.master_addr),
        **passed,
    }


def head_command(config: Config, ports: tuple[int, int], gpus: int, cpus: int = 0) -> list[str]:
    """What starts the head; one that no other machine joins listens on loopback alone.

    Without the variable Ray on Linux listens on an outer address even where 127.0.0.1 is named
    (``ray.services.resolve_ip_for_localhost``, Ray 2.60). The agent's port is named because its default is one number
    for all clusters of a machine: a second one could run no job.
    """
    alone = config.num_nodes == 1 and is_loopback(config.master_addr)
    return [*(["env", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0"] if alone else []), *RAY, *f"""
        start --head --block --disable-usage-stats --node-ip-address {config.master_addr} --port {ports[0]}
        --num-gpus {gpus} {f"--num-cpus {cpus}" if cpus else ""}
        --dashboard-host 127.0.0.1 --dashboard-port {ports[1]} --dashboard-agent-listen-port {ports[1] + 1}
    """.split()]


def worker_command(config: Config, gpus: int) -> str:
    """What the other machines of a cluster run."""
    return f"ray start --block --disable-usage-stats --address {config.master_addr}:{RAY_PORTS[0]} --num-gpus {gpus}"


def job_address(config: Config, ports: tuple[int, int] = RAY_PORTS) -> str:
    return config.ray_address or f"http://127.0.0.1:{ports[1]}"


def submit_command(address: str, job: str, runtime_env: Path, command: Sequence[str]) -> list[str]:
    """The shell command that submits the same job."""
    options = ["--address", address, "--submission-id", job, "--runtime-env", str(runtime_env)]
    return [*RAY, "job", "submit", *options, "--", *command]


def machines(address: str) -> list[int]:
    """GPUs of each living machine of a running cluster, the most first.

    Raises:
        ConfigError: no Ray answers at this address, or there is no Ray here to ask with.
    """
    settle_ray_auth()
    try:
        from ray.util.state import list_nodes  # planning does not need Ray otherwise

        nodes = list_nodes(address, [("state", "=", "ALIVE")], limit=10000, detail=True, raise_on_missing_output=False)
    except Exception as error:  # Ray's client has no common class for what another service's answer leads to
        raise ConfigError(f"RAY_ADDRESS={address}: PYTHON={sys.executable} gets no answer of a Ray job server there "
                          f"({reason_of(error)}); it is http://HEAD:8265 by default") from None
    return sorted((int(node.resources_total.get("GPU", 0)) for node in nodes), reverse=True)


def settle_ray_auth() -> None:
    """Have Ray's clients in this process send a token where a head would ask for one; before Ray is imported.

    A head of Ray 2.60 asks for tokens where the user has one, as every ``ray.init`` makes; a client does not look.
    """
    named = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    has_token = named or (Path.home() / ".ray" / "auth_token").is_file()
    os.environ.setdefault("RAY_AUTH_MODE", "token" if has_token else "disabled")


@contextmanager
def cluster(config: Config, ports: tuple[int, int], gpus: int, cpus: int, log: Path) -> Iterator[None]:
    """A Ray cluster with NUM_NODES machines of ``gpus`` GPUs for as long as the block lasts."""
    if config.ray_address:
        yield
        return
    settle_ray_auth()
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    for _ in range(_STARTS):
        head = ChildProcess("ray head", head_command(config, ports, gpus, cpus), environment, log)
        try:
            if _all_join(config, job_address(config, ports), gpus, head):
                yield
                return
        finally:
            head.stop(grace_s=_STOPS_WITHIN_S)
        logger.warning("%s", head.describe())
    raise ProcessError(head.describe())


def _all_join(config: Config, address: str, gpus: int, head: ChildProcess) -> bool:
    """Wait until NUM_NODES machines have joined; false where the head ends before. Raises MemAgentError."""
    if config.num_nodes > 1:
        logger.info("on each of the other %d machines run: %s", config.num_nodes - 1, worker_command(config, gpus))
    deadline, joined = time.monotonic() + _STARTS_WITHIN_S, 0
    while head.exit_code is None:
        with suppress(ConfigError):  # it does not listen yet
            joined = sum(has >= gpus for has in machines(address))
        if joined >= config.num_nodes:
            return True
        if time.monotonic() > deadline:
            raise MemAgentError(f"NUM_NODES={config.num_nodes}: {joined} machines with {gpus} GPUs have joined Ray in "
                                f"ten minutes; see {head.log_path}")
        time.sleep(0.5)
    return False


def run_job(
    config: Config, address: str, variables: Mapping[str, str], command: Sequence[str], log: Path,
    show: Callable[[str], None],
) -> None:
    """Submit the job, follow its log, and wait for its end; a KeyboardInterrupt stops the job first.

    Args:
        address: of the cluster's job server.
        variables: the environment of every process of the job.
        log: the file that keeps the job's log.
        show: called with each piece of it as it comes, of one line or more.

    Raises:
        MemAgentError: another job trains in SAVE_PATH, or this one was not accepted, failed or was stopped.
    """
    from ray.job_submission import JobStatus, JobSubmissionClient  # planning does not need Ray

    job = f"mem_agent-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    keys = _SECRETS if config.ray_address else ()
    variables = {**variables, **{name: os.environ[name] for name in keys if os.environ.get(name)}}
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):  # the client would prefer these to its argument
        os.environ.pop(name, None)
    try:
        client = JobSubmissionClient(address)
        for other in client.list_jobs():  # a killed launcher leaves its job to a joined cluster
            if not other.status.is_terminal() and ("--save", config.save_path) in pairwise(other.entrypoint.split()):
                raise MemAgentError(f"SAVE_PATH={config.save_path}: job {other.submission_id} trains there; wait for "
                                    f"it, or stop it: ray job stop --address {address} {other.submission_id}")
        _submit(client, entrypoint=shlex.join(command), submission_id=job, runtime_env={"env_vars": variables})
    except (OSError, RuntimeError) as error:
        raise MemAgentError(f"{address}: no job was submitted: {reason_of(error)}") from None
    try:
        run_stoppable(_follow_log(client, job, log, show))
        end = _wait_for_end(client, job)
    except KeyboardInterrupt:
        logger.info("stopping job %s", job)
        with suppress(OSError, RuntimeError):
            client.stop_job(job)
            _wait_for_end(client, job)
        raise
    if end.status != JobStatus.SUCCEEDED:
        raised = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception): .+$", end.message or "", re.MULTILINE)
        reason = raised[-1] if raised else (end.message or "").partition(", last available logs")[0]
        raise MemAgentError(f"job {job} {end.status.value}: {one_line(reason, 400)}; its log is {log}")


def _submit(client: Any, **job: Any) -> None:
    """A machine joins before its agent, which starts jobs; under load by a minute."""
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while True:
        try:
            client.submit_job(**job)
            return
        except RuntimeError as error:
            if "No available agent" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(1)


async def _follow_log(client: Any, job: str, log: Path, show: Callable[[str], None]) -> None:
    """Show the job's log, and add it to the file ``log``, until the job ends or the stream breaks."""
    try:
        with log.open("ab", buffering=0) as kept:
            async for lines in client.tail_job_logs(job):
                show(lines)
                kept.write(lines.encode())
    except RuntimeError as error:
        logger.warning("the log of job %s breaks off here (%s); waiting for its end", job, reason_of(error))


def _wait_for_end(client: Any, job: str) -> Any:
    """Its final ``JobDetails``; the cluster may be away for ten minutes meanwhile. Raises MemAgentError."""
    deadline = time.monotonic() + _LOST_AFTER_S
    while True:
        try:
            details = client.get_job_info(job)
            if details.status.is_terminal():
                return details
            deadline = time.monotonic() + _LOST_AFTER_S
        except (OSError, RuntimeError) as error:
            if time.monotonic() > deadline:
                raise MemAgentError(f"job {job}: its cluster does not answer any more: {reason_of(error)}") from None
        time.sleep(_POLL_S)
