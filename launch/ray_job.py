"""Ray: a head of our own or a running cluster, and the one job on it, through ``JobSubmissionClient``.

Only what was started here is stopped: our head with all its processes when the launcher ends in any way (see
``system/processes.py``); a joined cluster goes on. A head for one machine listens on loopback. The job's state decides
how the launcher ends, not the stream of its log, which may break overnight.
"""

from __future__ import annotations

import logging
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..config import Config
from ..system.cli import python_module, run_stoppable
from ..system.errors import MemAgentError, reason_of
from ..system.processes import ChildProcess, ProcessError
from ..system.server_url import is_loopback

logger = logging.getLogger("mem_agent")

RAY = python_module("ray.scripts.scripts")
RAY_PORTS = (6379, 8265)
"""Ports of the head and its job server (Ray's defaults); the dashboard agent gets the next one."""
_SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "ANSWER_KEY", "API_KEY", "OPENAI_API_KEY")
"""Keys for a joined cluster, which lacks our environment. Ray's dashboard shows them."""
_PASSED = ("NCCL_", "GLOO_", "HF_", "WANDB_", "VLLM_", "SGLANG_", "SGL_", "TRANSFORMERS_", "TORCH_", "PYTORCH_")
_KEPT_OUT = ("_TOKEN", "_KEY", "HF_CKPT", "TORCH_DIST")
_STARTS_WITHIN_S, _POLL_S, _STOPS_WITHIN_S, _ATTEMPTS = 600.0, 2.0, 30.0, 60
_TOO_BUSY = "timed out during startup"
"""What a head says that ends because its own parts did not start within 30 s: on a busy machine, after its dashboard
has answered."""


def without_proxy(env: Mapping[str, str], *hosts: str) -> dict[str, str]:
    """The variables by which requests to ``hosts`` and to this machine go past the user's proxy."""
    own = env.get("no_proxy") or env.get("NO_PROXY")
    value = ",".join(dict.fromkeys(["127.0.0.1", "localhost", *hosts, *([own] if own else [])]))
    return {"no_proxy": value, "NO_PROXY": value}


def worker_variables(env: Mapping[str, str], config: Config, python_path: str) -> dict[str, str]:
    """Variables for every process of the job. The user's settings of libraries win; the pack's own travel in its YAML;
    keys stay out, as Ray's dashboard shows a job's environment.
    """
    passed = {name: value for name, value in env.items() if name.startswith(_PASSED) and not name.endswith(_KEPT_OUT)}
    return {
        "PYTHONPATH": python_path,
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
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


@contextmanager
def cluster(config: Config, ports: tuple[int, int], gpus: int, cpus: int, log: Path) -> Iterator[None]:
    """A Ray cluster for as long as the block lasts. The host waits for machines that have not joined yet."""
    # A head of Ray 2.60 asks for tokens where the user has one, as every ``ray.init`` makes; a client does not look.
    # Clients in this process, which has not imported Ray yet, shall send one where a head would ask for it.
    named = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    has_token = named or (Path.home() / ".ray" / "auth_token").is_file()
    os.environ.setdefault("RAY_AUTH_MODE", "token" if has_token else "disabled")
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):  # Ray's client would prefer these to its argument
        os.environ.pop(name, None)
    if config.ray_address:
        yield
        return
    from ray.util.state import list_nodes  # planning does not need Ray
    from ray.util.state.exception import RayStateApiException

    start = partial(ChildProcess, "ray head", head_command(config, ports, gpus, cpus), os.environ, log)
    head = start()
    try:
        deadline, answers = time.monotonic() + _STARTS_WITHIN_S, False
        while not answers:
            if head.exit_code is not None and _TOO_BUSY in head.describe() and time.monotonic() < deadline:
                head.stop()
                head = start()
            if head.exit_code is not None or time.monotonic() > deadline:
                raise ProcessError(head.describe())
            time.sleep(0.5)
            with suppress(RayStateApiException):
                answers = any(node.state == "ALIVE" for node in list_nodes(job_address(config, ports)))
        if config.num_nodes > 1:
            logger.info("on each of the other %d machines run: %s", config.num_nodes - 1, worker_command(config, gpus))
        yield
    finally:
        head.stop(grace_s=_STOPS_WITHIN_S)


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
    try:
        client = JobSubmissionClient(address)
        for other in _answer(client.list_jobs):  # a killed launcher leaves its job to a joined cluster
            if not other.status.is_terminal() and ("--save", config.save_path) in pairwise(other.entrypoint.split()):
                raise MemAgentError(f"SAVE_PATH={config.save_path}: job {other.submission_id} trains there; wait for "
                                    f"it, or stop it: ray job stop --address {address} {other.submission_id}")
        _answer(client.submit_job, entrypoint=shlex.join(command), submission_id=job,
                runtime_env={"env_vars": variables})
    except (OSError, RuntimeError) as error:
        if "already exists" not in str(error):  # accepted before the connection dropped
            raise MemAgentError(f"{address}: no job was submitted: {reason_of(error)}") from None
    try:
        run_stoppable(_follow_log(client, job, log, show))
        while not (status := _answer(client.get_job_status, job)).is_terminal():
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        logger.info("stopping job %s", job)
        client.stop_job(job)
        raise
    except (OSError, RuntimeError) as error:
        raise MemAgentError(f"job {job}: its cluster does not answer any more: {reason_of(error)}") from None
    if status != JobStatus.SUCCEEDED:
        raise MemAgentError(f"job {job} {status.value}; the end of its log says why: {log}")


def _answer(ask: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the cluster answers. A busy dashboard drops a connection now and then, and under load the agent of a
    machine, which starts jobs, joins a minute after it.
    """
    attempts = _ATTEMPTS
    while True:
        attempts -= 1
        try:
            return ask(*args, **kwargs)
        except (OSError, RuntimeError) as error:
            passes = isinstance(error, OSError) or "No available agent" in str(error)
            if not passes or not attempts:
                raise
        time.sleep(_POLL_S)


async def _follow_log(client: Any, job: str, log: Path, show: Callable[[str], None]) -> None:
    """Show the job's log, and add it to the file ``log``, until the job ends or the stream breaks."""
    try:
        with log.open("ab", buffering=0) as kept:
            async for lines in client.tail_job_logs(job):
                show(lines)
                kept.write(lines.encode())
    except RuntimeError as error:
        logger.warning("the log of job %s breaks off here (%s); waiting for its end", job, reason_of(error))
