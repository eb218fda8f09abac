"""What vime asks for beyond ``torch.cuda``: vLLM's NCCL weight transfer, and vLLM 0.23's places for its modules.

    trainer    its half of the weight transfer, over gloo; the engine's is ``vllm_weights``
    parser     a module that vLLM 0.32 has elsewhere
    addresses  loopback: a server of the machine's own address would be open to its network
    engine     the server it starts becomes one for this CPU (``vllm_command``); where it runs the command ``vllm``,
               ``bin/`` on the job's PATH does that
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from .gloo_weights import WeightGroup
from .imports import after_import, moved_module
from .vllm_command import start_with


def install() -> None:
    moved_module("vllm.entrypoints.openai.cli_args", "vllm.entrypoints.launchers.cli_args")
    after_import("vime.backends.megatron_utils.update_weight", _give_weight_transfer)
    after_import("vime.backends.megatron_utils.update_weight.update_weight_from_distributed", _log_devices)
    after_import("vime.utils.misc", _stay_on_this_machine)
    after_import("vime.backends.vllm_utils.vllm_engine", _start_engines_on_cpu)


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


def _give_weight_transfer(_: ModuleType) -> None:
    """In the trainer's processes alone; they need not import vLLM then."""
    name = "vllm.distributed.weight_transfer.nccl_engine"
    module: Any = ModuleType(name)
    module.NCCLTrainerSendWeightsArgs = NCCLTrainerSendWeightsArgs
    module.NCCLWeightTransferEngine = NCCLWeightTransferEngine
    sys.modules[name] = module


def _log_devices(module: ModuleType) -> None:
    """vime writes the current device as the number that it is on a GPU."""

    def number(record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(0 if isinstance(item, torch.device) else item for item in record.args)
        return True

    module.logger.addFilter(number)


def _stay_on_this_machine(module: ModuleType) -> None:
    """Ray's head answers with the machine's own address even where it is told 127.0.0.1."""
    module.get_current_node_ip = lambda: "127.0.0.1"  # type: ignore[attr-defined]


def _start_engines_on_cpu(module: ModuleType) -> None:
    if hasattr(module, "_run_vllm_server"):
        module._run_vllm_server = start_with  # type: ignore[attr-defined]
