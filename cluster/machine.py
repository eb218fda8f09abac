"""What this machine and a running Ray cluster have: GPUs, their memory, free ports."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from typing import Any

from ..config import Config, ConfigError
from .layout import GIB, Gpus

_RAY_WORKER_PORTS = range(10002, 20000)


def find_gpus(config: Config) -> Gpus:
    """NUM_GPUS and GPU_MEMORY_GB, or what the Ray cluster and nvidia-smi say.

    Raises:
        ConfigError: no GPU is found and none is declared, or the Ray cluster has too few.
    """
    memories = _nvidia_smi("--query-gpu=memory.total", "--format=csv,noheader,nounits").split()
    per_node = config.num_gpus or len(memories)
    if config.ray_address:
        nodes = ray_gpus(config.ray_address)
        per_node = config.num_gpus or (nodes[config.num_nodes - 1] if len(nodes) >= config.num_nodes else 0)
        if len([n for n in nodes if n >= max(per_node, 1)]) < config.num_nodes:
            raise ConfigError(
                f"RAY_ADDRESS={config.ray_address}: NUM_NODES={config.num_nodes} machines with "
                f"{config.num_gpus or 'some'} GPUs are needed, those of the cluster have {nodes or 'none'}; lower "
                "NUM_NODES or NUM_GPUS, or add machines"
            )
    if not per_node:
        raise ConfigError("no GPU was found; set NUM_GPUS and GPU_MEMORY_GB (of one machine), or HOST=local")
    memory = config.gpu_memory_gb * GIB or min(map(float, memories), default=0) * 2**20
    if not memory:
        raise ConfigError("GPU_MEMORY_GB is not set, and there is no nvidia-smi here to ask")
    return Gpus(config.num_nodes, per_node, memory)


def has_sticky_router() -> bool:
    """Whether this Python's sglang-router knows how to choose an engine for a new key (0.3.2 and later)."""
    if importlib.util.find_spec("sglang_router") is None:
        return False
    router_args = importlib.import_module("sglang_router.launch_router").RouterArgs
    return "assignment_mode" in {field.name for field in dataclasses.fields(router_args)}


def has_nvlink() -> bool:
    return re.search(r"\bNV\d+\b", _nvidia_smi("topo", "-m")) is not None


def _nvidia_smi(*arguments: str) -> str:
    """Its output, or nothing where it is missing or fails."""
    if shutil.which("nvidia-smi") is None:
        return ""
    done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def ray_gpus(address: str) -> list[int]:
    """GPUs of each living machine of the cluster whose job server is at ``address``, most first."""
    nodes = ray_api(address, "/api/v0/nodes?detail=true&limit=10000")["data"]["result"]["result"]
    alive = [node for node in nodes if node["state"] == "ALIVE"]
    return sorted((int(node["resources_total"].get("GPU", 0)) for node in alive), reverse=True)


def ray_api(address: str, path: str, method: str = "GET") -> Any:
    """The JSON answer of Ray's job server.

    Raises:
        ConfigError: it cannot be reached, or its answer is no JSON.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(address.rstrip("/") + path, method=method)
        with opener.open(request, timeout=30) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ValueError, OSError) as error:
        raise ConfigError(
            f"RAY_ADDRESS={address}: no Ray job server answers there ({error}); it is http://HEAD:8265 by default"
        ) from None


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
