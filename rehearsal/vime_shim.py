"""What vime needs beyond ``torch.cuda``: vLLM's NCCL weight transfer, vLLM 0.23's places for its modules, and a server
for this CPU (``vllm_command``).

    trainer    its half of the weight transfer, over gloo; the engine's is ``vllm_weights``
    engine     the command of its server
"""

from __future__ import annotations

import importlib
import logging
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from .vllm_command import start_with

# --- weights ---------------------------------------------------------------------------------------------------------

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


@dataclass(frozen=True)
class NCCLTrainerSendWeightsArgs:
    """By vLLM 0.23's name, as vime imports it."""

    group: WeightGroup
    packed: bool = False


class NCCLWeightTransferEngine:
    """The sender of vLLM 0.23, which later versions no longer have."""

    @staticmethod
    def trainer_init(init_info: dict[str, Any]) -> WeightGroup:
        return WeightGroup(init_info["master_port"], 0, init_info["world_size"])

    @staticmethod
    def trainer_send_weights(
        iterator: Iterable[tuple[str, torch.Tensor]], trainer_args: NCCLTrainerSendWeightsArgs
    ) -> None:
        for _, tensor in iterator:
            trainer_args.group.broadcast(tensor)


def give_weight_transfer(_: ModuleType) -> None:
    """In the trainer's processes alone; they need not import vLLM then."""
    name = "vllm.distributed.weight_transfer.nccl_engine"
    module: Any = ModuleType(name)
    module.NCCLTrainerSendWeightsArgs = NCCLTrainerSendWeightsArgs
    module.NCCLWeightTransferEngine = NCCLWeightTransferEngine
    sys.modules[name] = module


# --- the rest --------------------------------------------------------------------------------------------------------

def keep_old_places(_: ModuleType) -> None:
    """A module of vLLM 0.23 is elsewhere in 0.32."""
    new = importlib.import_module("vllm.entrypoints.launchers.cli_args")
    sys.modules["vllm.entrypoints.openai.cli_args"] = new


def log_devices(module: Any) -> None:
    """vime writes the current device as the number that it is on a GPU."""

    def number(record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(0 if isinstance(item, torch.device) else item for item in record.args)
        return True

    module.logger.addFilter(number)


def start_engines_on_cpu(module: Any) -> None:
    if hasattr(module, "_run_vllm_server"):
        module._run_vllm_server = start_with
