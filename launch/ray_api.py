"""What a Ray cluster says of itself, asked at its job server."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from ..config import ConfigError

_NOT_THERE = "RAY_ADDRESS={address}: no Ray job server answers there ({error}); it is http://HEAD:8265 by default"


class NotKnown(ConfigError):
    """The job server answers, but knows nothing of what was asked for."""


@dataclass(frozen=True, order=True)
class MachineGpus:
    """One machine of a cluster. ``free`` is ``total`` where the cluster does not tell."""

    total: int
    free: int


def machines(address: str) -> list[MachineGpus]:
    """Those that live, the one with most GPUs first."""
    try:
        nodes = ray_api(address, "/api/v0/nodes?detail=true&limit=10000")["data"]["result"]["result"]
        alive = [node for node in nodes if node["state"] == "ALIVE"]
    except (NotKnown, KeyError, TypeError) as error:
        raise ConfigError(_NOT_THERE.format(address=address, error=f"its answer is another: {error!r}")) from None
    used = _used_gpus(address)
    found = []
    for node in alive:
        total = node["resources_total"].get("GPU", 0)
        busy = used.get(node.get("node_id"), used.get(node.get("node_ip"), 0))
        found.append(MachineGpus(int(total), int(total - busy)))
    return sorted(found, reverse=True)


def _used_gpus(address: str) -> dict[str, float]:
    """By node id or address, as Ray's autoscaler last counted; nothing where none runs."""
    try:
        status = ray_api(address, "/api/cluster_status")["data"]["clusterStatus"]
        usage = status["loadMetricsReport"]["usageByNode"]
        return {node: of.get("GPU", [0.0])[0] for node, of in usage.items()}
    except (ConfigError, KeyError, TypeError, AttributeError):
        return {}


def ray_api(address: str, path: str, method: str = "GET") -> Any:
    """The JSON answer of Ray's job server.

    Raises:
        NotKnown: the server answers 404.
        ConfigError: it cannot be reached, or its answer is no JSON.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(address.rstrip("/") + path, method=method)
        with opener.open(request, timeout=30) as answer:
            return json.load(answer)
    except (urllib.error.URLError, http.client.HTTPException, ValueError, OSError) as error:
        if isinstance(error, urllib.error.HTTPError) and error.code == 404:
            raise NotKnown(f"Ray's job server at {address} knows no {path}") from None
        raise ConfigError(_NOT_THERE.format(address=address, error=" ".join(str(error).split()))) from None
