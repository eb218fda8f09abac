"""One process group between a trainer's rank 0 and the workers of its engines, over gloo on the loopback interface."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

_PATIENCE = timedelta(minutes=5)


class WeightGroup:
    """Rank 0, the trainer, sends; all others receive. Constructing it waits for all ``world_size`` members."""

    def __init__(self, address: str, port: int, rank: int, world_size: int) -> None:
        self._store = dist.TCPStore(address, port, world_size, is_master=rank == 0, timeout=_PATIENCE)
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname="127.0.0.1")]
        options._timeout = _PATIENCE
        self._group = gloo(dist.PrefixStore("weights", self._store), rank, world_size, options)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Fill ``tensor`` on every other rank with rank 0's, in place."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        self._group.broadcast([tensor], options).wait()
