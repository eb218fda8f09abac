"""What this machine and a running Ray cluster have: GPUs, their memory, free ports."""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import os
import re
import shutil
import socket
import subprocess
import sys

from ..config import Config, ConfigError
from ..system.errors import MemAgentError
from ..system.printable import one_line
from ..system.process_environment import without_secrets
from .layout import GIB, Gpus, MachineGpus

_RAY_WORKER_PORTS = range(10002, 20000)
_NVIDIA_SMI_ANSWERS_IN_S = 60.0
logger = logging.getLogger(__name__)


class TokenRefused(ConfigError):
    """The cluster's job server wants a token that is not here; asking again changes nothing."""


def find_gpus(config: Config) -> Gpus:
    """NUM_GPUS and GPU_MEMORY_GB, or what the Ray cluster and nvidia-smi say.

    Raises:
        ConfigError: no GPU is found and none is declared, or the Ray cluster has too few.
    """
    told = _nvidia_smi("--query-gpu=memory.total", "--format=csv,noheader,nounits").splitlines()
    memories = [line.strip() for line in told if line.strip()]
    per_node = config.num_gpus or len(memories)
    if config.ray_address:
        per_node = _gpus_of_cluster(config)
    if not per_node:
        raise ConfigError("no GPU was found; set NUM_GPUS and GPU_MEMORY_GB (of one machine), or HOST=local")
    memory = config.gpu_memory_gb * GIB or min(map(_mebibytes, memories), default=0) * 2**20
    if not memory:
        raise ConfigError("GPU_MEMORY_GB is not set, and there is no nvidia-smi here to ask")
    return Gpus(config.num_nodes, per_node, memory)


def _mebibytes(told: str) -> float:
    if not re.fullmatch(r"[0-9]{1,12}", told):
        raise ConfigError(f"GPU_MEMORY_GB is not set, and nvidia-smi says {one_line(told, 40)!r} in its place; set it")
    return float(told)


def _gpus_of_cluster(config: Config) -> int:
    """GPUs of each of NUM_NODES machines of the running cluster."""
    found = machines(config.ray_address)
    per_node = config.num_gpus or (found[config.num_nodes - 1].total if len(found) >= config.num_nodes else 0)
    if sum(machine.total >= max(per_node, 1) for machine in found) < config.num_nodes:
        have = ", ".join(str(machine.total) for machine in found) or "none"
        raise ConfigError(
            f"RAY_ADDRESS={config.ray_address}: NUM_NODES={config.num_nodes} machines with {per_node or 'some'} GPUs "
            f"are needed, those of the cluster have {have}; lower NUM_NODES or NUM_GPUS, or add machines"
        )
    return per_node


def check_free(config: Config, per_node: int) -> None:
    """Raise ConfigError if other jobs hold GPUs that are needed."""
    found = machines(config.ray_address)
    if sum(machine.free >= per_node for machine in found) < config.num_nodes:
        have = ", ".join(f"{machine.free} of {machine.total}" for machine in found)
        raise ConfigError(
            f"RAY_ADDRESS={config.ray_address}: {per_node} free GPUs are needed on NUM_NODES={config.num_nodes} "
            f"machines, free are {have}; wait for other jobs to end, or lower NUM_GPUS"
        )


def machines(address: str) -> list[MachineGpus]:
    """The living machines of a running cluster, the one with most GPUs first.

    Raises:
        TokenRefused: it answers those only who have its token.
        ConfigError: no job server of Ray is at this address, or there is no Ray here to ask it with.
    """
    try:
        from . import job_server  # planning needs Ray for nothing else

        return sorted(job_server.machines(address), reverse=True)
    except ImportError as error:
        raise ConfigError(f"RAY_ADDRESS={address}: {sys.executable} cannot ask there ({error}); set PYTHON to the "
                          "Python of the host's environment") from None
    except TokenRefused:
        raise
    except Exception as error:  # whatever Ray's client makes of another service's answer
        reason = " ".join(str(error).split())[-300:]
        raise ConfigError(
            f"RAY_ADDRESS={address}: no Ray job server answers there ({reason}); it is http://HEAD:8265 by default"
        ) from None


def trains_there_already(address: str, save_path: str) -> bool:
    """Whether a job that the launcher will stop, or tell of (``ray_jobs``), has GPUs of the cluster."""
    try:
        from . import ray_jobs

        return bool(ray_jobs.earlier_jobs(address, save_path))
    except (ImportError, MemAgentError):
        return False


def has_sticky_router() -> bool:
    """Whether this Python's sglang-router knows how to choose an engine for a new key (0.3.2 and later)."""
    if importlib.util.find_spec("sglang_router") is None:
        return False
    router_args = importlib.import_module("sglang_router.launch_router").RouterArgs
    return "assignment_mode" in {field.name for field in dataclasses.fields(router_args)}


def has_gpus() -> bool:
    return bool(_nvidia_smi("-L").strip())


def has_nvlink() -> bool:
    return re.search(r"\bNV\d+\b", _nvidia_smi("topo", "-m")) is not None


def _nvidia_smi(*arguments: str) -> str:
    """The output of nvidia-smi, or nothing where it is missing, fails or hangs, as it does on a driver that does."""
    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=without_secrets(os.environ),
                              timeout=_NVIDIA_SMI_ANSWERS_IN_S)
    except subprocess.TimeoutExpired:
        logger.warning("`%s` gave no answer in %g s and is passed over", " ".join(command), _NVIDIA_SMI_ANSWERS_IN_S)
        return ""
    return done.stdout if done.returncode == 0 else ""


def check_port(variable: str, port: int) -> None:
    """Raise ConfigError if ``port`` is taken or Ray would give it to its workers."""
    if port in _RAY_WORKER_PORTS:
        raise ConfigError(f"{variable}={port}: Ray keeps 10002 to 19999 for its workers; choose another port")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError as error:
            raise ConfigError(
                f"{variable}={port}: the port is taken ({error.strerror}); if a Ray cluster runs there, set "
                f"RAY_ADDRESS=http://127.0.0.1:8265 to use it, else choose another port"
            ) from None
