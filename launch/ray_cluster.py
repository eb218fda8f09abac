"""Ray: a head of our own or a cluster that runs already. The job on it is in ``ray_jobs.py``.

Invariants:
- only what was started here is stopped: our head with all its processes when the launcher ends in any way (see
  ``system/processes.py``); a joined cluster goes on;
- the head's job server listens on 127.0.0.1: whoever reaches it may run anything;
- a head for one machine wants a token, the user's or one of its own, and listens there with all its processes, unless
  MASTER_ADDR is another address; one that others join listens on every address;
- a head for one machine has its sockets and logs in a folder that this user alone can open, which goes with it: in
  ``/tmp/ray`` Ray gives all of them mode 0777;
- its ports are held from the plan on, and nothing is sent to the job server's but while this user listens there.
"""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from ..config import Config, ConfigError
from ..system.atomic_file import write_for_owner
from ..system.errors import MemAgentError
from ..system.own_folder import own_folder
from ..system.ports import hold_port, listening_users
from ..system.process_environment import without_secrets
from ..system.processes import ChildProcess
from ..system.python_command import python_module
from ..system.ray_on_loopback import RAY_ON_LOOPBACK
from ..system.server_url import is_loopback
from .layout import MachineGpus
from .machine import TokenRefused, machines

logger = logging.getLogger("mem_agent")

RAY = python_module("ray.scripts.scripts")


def head_command(config: Config, gpus: int, cpus: int = 0) -> list[str]:
    return [
        *RAY, "start", "--head", "--block", "--disable-usage-stats",
        "--node-ip-address", config.master_addr,
        "--port", str(config.ray_port),
        "--num-gpus", str(gpus),
        *(["--num-cpus", str(cpus)] if cpus else []),
        "--dashboard-host", "127.0.0.1",
        "--dashboard-port", str(config.ray_dashboard_port),
        # Its default is one number for all clusters of a machine: a second one could run no job.
        "--dashboard-agent-listen-port", str(config.ray_dashboard_port + 1),
    ]


def head_variables(config: Config) -> dict[str, str]:
    """What a head's environment has beside the user's."""
    return RAY_ON_LOOPBACK if config.num_nodes == 1 and is_loopback(config.master_addr) else {}


def worker_command(config: Config, gpus: int) -> list[str]:
    """What the other machines of a cluster run."""
    address = f"{config.master_addr}:{config.ray_port}"
    return ["ray", "start", "--block", "--disable-usage-stats", "--address", address, "--num-gpus", str(gpus)]


def job_address(config: Config) -> str:
    return config.ray_address or f"http://127.0.0.1:{config.ray_dashboard_port}"


def submit_command(config: Config, job: str, runtime_env: Path, command: Sequence[str]) -> list[str]:
    """What submits the same job by hand, for a dry run to print."""
    return [
        *RAY, "job", "submit", "--address", job_address(config), "--submission-id", job,
        "--runtime-env", str(runtime_env), "--", *command,
    ]


@contextmanager
def cluster(config: Config, gpus: int, cpus: int, log: Path, tokens: Path) -> Iterator[None]:
    """A Ray cluster with NUM_NODES machines of ``gpus`` GPUs for as long as the block lasts.

    Should this process be killed, the folder ``tokens`` goes with the head.
    """
    if config.ray_address:
        yield
        return
    with _own_token(config, tokens), _own_files(config) as files:
        environment, cleanup = _head_environment(config, tokens) | files, [tokens, *map(Path, files.values())]
        head = ChildProcess("ray head", head_command(config, gpus, cpus), environment, log, cleanup)
        try:
            _wait_for_machines(config, gpus, head)
            yield
        finally:
            head.stop(grace_s=30.0)
            (tokens / "ray_token").unlink(missing_ok=True)


@contextmanager
def held_ports(config: Config) -> Iterator[None]:
    """Those of a head of our own, for as long as the block lasts. Raises ConfigError where one is somebody else's."""
    dashboard = config.ray_dashboard_port
    wanted = {"RAY_PORT": config.ray_port, "RAY_DASHBOARD_PORT": dashboard, "RAY_DASHBOARD_PORT + 1": dashboard + 1}
    with ExitStack() as opened:
        for variable, number in wanted.items() if not config.ray_address else ():
            held = hold_port(number)
            if held is None:
                raise ConfigError(f"{variable}={number}: the port is taken, or held by another run; choose another")
            opened.enter_context(closing(held))
        yield


@contextmanager
def _own_files(config: Config) -> Iterator[dict[str, str]]:
    """The variable that names the folder for Ray's sockets and logs; none where other machines join the head, which
    take the name of its.

    The head's workers and job have it as well: in ``/tmp/ray`` a job finds whatever head was started last.
    """
    if config.num_nodes > 1:
        yield {}
        return
    parent = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    if len(os.fsencode(parent)) > _LONGEST_PARENT:
        logger.warning("%s is too long for the names of Ray's sockets: its files are in /tmp", parent)
        parent = "/tmp"
    folder = own_folder(Path(parent), "ray_")
    try:
        yield {"RAY_TMPDIR": str(folder.path)}
    finally:
        folder.remove()


_LONGEST_PARENT = 20
"""A socket's name has 107 bytes, of which the folder takes 18 and /ray/session_DATE_PID/sockets/plasma_store 68."""


@contextmanager
def _own_token(config: Config, tokens: Path) -> Iterator[None]:
    """One for a head that no other machine joins, in a file, where the user has none and has not said that there be
    none; the head, its job and this process, which submits it, find it by a variable, and Ray then wants it (2.60)."""
    if config.num_nodes > 1 or any(map(os.environ.get, _OF_TOKENS)) or _has_token():
        yield
        return
    file = _token_file(tokens)
    write_for_owner(file, secrets.token_hex(32).encode())
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(file)
    try:
        yield
    finally:
        for name in _OF_TOKENS:  # Ray's client has set the mode
            os.environ.pop(name, None)


def _has_token() -> bool:
    """Whether the user has one where Ray looks for it. A container's may be a bare number, without a home."""
    try:
        return (Path.home() / ".ray" / "auth_token").exists()
    except RuntimeError:
        return False


_OF_TOKENS = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


def _token_file(tokens: Path) -> Path:
    tokens.mkdir(parents=True, exist_ok=True, mode=0o700)
    return tokens / "ray_token"


def _head_environment(config: Config, tokens: Path) -> dict[str, str]:
    """Workers inherit it, so it has no secrets; a Ray token that is in a variable becomes a file in ``tokens``."""
    environment = head_variables(config) | without_secrets(os.environ)
    if os.environ.get("RAY_AUTH_TOKEN"):
        file = _token_file(tokens)
        write_for_owner(file, os.environ["RAY_AUTH_TOKEN"].encode())
        environment["RAY_AUTH_TOKEN_PATH"] = str(file)
    return environment


def _machines_of(config: Config) -> list[MachineGpus]:
    """Of our own head, once it listens; whoever else took its port is sent no token.

    Raises:
        ConfigError: nobody listens yet, or nobody answers.
        MemAgentError: another user listens.
    """
    port = config.ray_dashboard_port
    users = listening_users(port)
    if users is not None and not users:
        raise ConfigError("nobody listens yet")
    if users is not None and users != {os.geteuid()}:
        raise MemAgentError(f"RAY_DASHBOARD_PORT={port}: another user of this machine listens there; choose another")
    return machines(job_address(config))


def _wait_for_machines(config: Config, gpus: int, head: ChildProcess) -> None:
    if config.num_nodes > 1:
        logger.info("on each of the other %d machines run: %s", config.num_nodes - 1,
                    " ".join(worker_command(config, gpus)))
    deadline, last_report = time.monotonic() + config.ray_start_timeout, 0.0
    while True:
        if head.exit_code is not None:
            raise MemAgentError(f"the Ray head did not start; see {head.log_path}")
        try:
            found = [machine for machine in _machines_of(config) if machine.total >= gpus]
        except TokenRefused as error:
            raise MemAgentError(f"the Ray head was started, and {error}") from None
        except ConfigError:
            found = []
        if len(found) >= config.num_nodes and head.exit_code is None:
            return
        if time.monotonic() > deadline:
            raise MemAgentError(
                f"{len(found)} of {config.num_nodes} machines with {gpus} GPUs have joined Ray after "
                f"RAY_START_TIMEOUT={config.ray_start_timeout:g} s; see {head.log_path}"
            )
        if time.monotonic() - last_report > 30:
            last_report = time.monotonic()
            logger.info("Ray: %d of %d machines are there", len(found), config.num_nodes)
        time.sleep(0.5)
