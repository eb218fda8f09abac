"""One process group between a trainer's rank 0 and the workers of its engines, over gloo on the loopback interface."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

_LOOPBACK = "127.0.0.1"
"""Whatever address a host names, its own perhaps, which is open to its network: all members are on this machine."""
_PATIENCE = timedelta(minutes=5)


class WeightGroup:
    """Rank 0, the trainer, sends; all others receive. Constructing it waits for all ``world_size`` members."""

    def __init__(self, port: int, rank: int, world_size: int) -> None:
        # The store would listen on every address of the machine.
        listening = socket.create_server((_LOOPBACK, port)).detach() if rank == 0 else None
        self._store = dist.TCPStore(
            _LOOPBACK, port, world_size, is_master=rank == 0, timeout=_PATIENCE, master_listen_fd=listening
        )
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname=_LOOPBACK)]
        options._timeout = _PATIENCE
        self._group = gloo(dist.PrefixStore("weights", self._store), rank, world_size, options)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Fill ``tensor`` on every other rank with rank 0's, in place."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        self._group.broadcast([tensor], options).wait()
