"""What this machine and a running Ray cluster have: GPUs, their memory, NVLink."""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from ..config import Config, ConfigError
from ..system.errors import reason_of
from .layout import GIB, Gpus

logger = logging.getLogger("mem_agent")
ASSUMED_GIB = 80
"""Memory of a GPU that is not here to be asked."""


def find_gpus(config: Config) -> Gpus:
    """NUM_GPUS, or what nvidia-smi or the Ray cluster say; memory by nvidia-smi.

    Raises:
        ConfigError: no GPU is found and none is declared, or the Ray cluster has too few.
    """
    memories = nvidia_smi("--query-gpu=memory.total", "--format=csv,noheader,nounits").splitlines()
    per_node = config.num_gpus or len(memories)
    if config.ray_address:
        per_node = _gpus_of_cluster(config)
    if not per_node:
        raise ConfigError("NUM_GPUS=0, and no GPU was found; set NUM_GPUS to those of one machine, or HOST=local")
    memory = min((int(m) for m in memories if m.isdecimal()), default=0) * 2**20
    if not memory:
        logger.warning("nvidia-smi tells no GPU's memory here: %d GiB are assumed", ASSUMED_GIB)
    return Gpus(config.num_nodes, per_node, memory or ASSUMED_GIB * GIB)


def _gpus_of_cluster(config: Config) -> int:
    """GPUs of each of NUM_NODES machines of the running cluster."""
    found = machines(config.ray_address)
    per_node = config.num_gpus or (found[config.num_nodes - 1] if len(found) >= config.num_nodes else 0)
    if sum(gpus >= max(per_node, 1) for gpus in found) < config.num_nodes:
        raise ConfigError(
            f"RAY_ADDRESS={config.ray_address}: NUM_NODES={config.num_nodes} machines with {per_node or 'some'} GPUs "
            f"are needed, those of the cluster have {', '.join(map(str, found)) or 'none'}; lower NUM_NODES or "
            "NUM_GPUS, or add machines"
        )
    return per_node


def machines(address: str) -> list[int]:
    """GPUs of each living machine of a running cluster, the most first.

    Raises:
        ConfigError: no Ray answers at this address, or there is no Ray here to ask with.
    """
    settle_ray_auth()
    try:
        from ray.util.state import list_nodes  # planning does not need Ray otherwise

        nodes = list_nodes(address, [("state", "=", "ALIVE")], limit=10000, detail=True, raise_on_missing_output=False)
    except ImportError as error:
        raise ConfigError(f"RAY_ADDRESS={address}: {sys.executable} cannot ask there ({error}); set PYTHON to the "
                          "Python of the host's environment") from None
    except Exception as error:  # Ray's client has no common class for what another service's answer leads to
        raise ConfigError(f"RAY_ADDRESS={address}: no Ray job server answers there ({reason_of(error)}); it is "
                          "http://HEAD:8265 by default") from None
    return sorted((int(node.resources_total.get("GPU", 0)) for node in nodes), reverse=True)


def settle_ray_auth() -> None:
    """Have Ray's clients in this process send a token where a head would ask for one; before Ray is imported.

    A head of Ray 2.60 asks for tokens where the user has one, as every ``ray.init`` makes; a client does not look.
    """
    named = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    has_token = named or (Path.home() / ".ray" / "auth_token").is_file()
    os.environ.setdefault("RAY_AUTH_MODE", "token" if has_token else "disabled")


def has_sticky_router() -> bool:
    """Whether this Python's sglang-router knows how to choose an engine for a new key (0.3.2 and later)."""
    if importlib.util.find_spec("sglang_router") is None:
        return False
    router_args = importlib.import_module("sglang_router.launch_router").RouterArgs
    return "assignment_mode" in {field.name for field in dataclasses.fields(router_args)}


def has_gpus() -> bool:
    return bool(nvidia_smi("-L").strip())


def has_nvlink() -> bool:
    return re.search(r"\bNV\d+\b", nvidia_smi("topo", "-m")) is not None


def nvidia_smi(*arguments: str) -> str:
    """The output of nvidia-smi, or nothing where it is missing, fails or hangs, as it does on a driver that does."""
    if shutil.which("nvidia-smi") is None:
        return ""
    try:
        done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout if done.returncode == 0 else ""
