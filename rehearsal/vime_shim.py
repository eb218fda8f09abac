"""What vime needs beyond ``torch.cuda``: vLLM's NCCL weight transfer, vLLM 0.23's places for its modules, and a server
for this CPU.

    trainer    its half of the weight transfer, over gloo; the engine's is ``vllm_weights``
    engine     its command with the pack's CPU options, in the pack's own Python

vime calls vLLM in a child process with the flags' values. ``start`` replaces that process: its pid stays the one vime
ends.
"""

from __future__ import annotations

import importlib
import json
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from ..config import Config
from ..serving.servers import SERVER, engine_environment, engine_options
from ..system.cli import python_module

PYTHON = "MEM_AGENT_ENGINE_PYTHON"
"""Variable: the Python that has vLLM for this machine."""
OPTIONS = "MEM_AGENT_ENGINE_OPTIONS"
"""Variable: flags for the server behind those of vime, as a shell reads them; of two of one name the last wins."""
_PACKAGE = Path(__file__).parents[1]
"""Not resolved: the folder around it makes this pack importable by its name."""

# --- weights ---------------------------------------------------------------------------------------------------------

_PATIENCE = timedelta(minutes=5)


class WeightGroup:
    """Rank 0, the trainer, sends; all others receive. Constructing it waits for all ``world_size`` members. Whatever
    address a host names, all are on this machine.
    """

    def __init__(self, port: int, rank: int, world_size: int) -> None:
        self._store = dist.TCPStore("127.0.0.1", port, world_size, is_master=rank == 0, timeout=_PATIENCE)
        store = dist.PrefixStore("weights", self._store)
        self._group: Any = dist.ProcessGroupGloo(store, rank, world_size, _PATIENCE)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Fill ``tensor`` on every other rank with rank 0's, in place."""
        self._group.broadcast(tensor, 0).wait()


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


# --- an older vLLM --------------------------------------------------------------------------------------------------

def keep_old_places(_: ModuleType) -> None:
    """A module of vLLM 0.23 is elsewhere in 0.32."""
    new = importlib.import_module("vllm.entrypoints.launchers.cli_args")
    sys.modules["vllm.entrypoints.openai.cli_args"] = new


# --- the server ------------------------------------------------------------------------------------------------------

def engine_variables(config: Config, python: str) -> dict[str, str]:
    """What a job's processes need in order to start servers with ``python``."""
    weights = ["--worker-extension-cls", "mem_agent.rehearsal.vllm_weights.GlooWeights",
               "--weight-transfer-config", json.dumps({"backend": "gloo"})]
    return {PYTHON: python, OPTIONS: shlex.join([*engine_options(config, "cpu"), *weights])}


def start(values: dict[str, Any], environment: dict[str, str]) -> None:
    """Become the server described by the values of vLLM's flags, by name, as a host's child process."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    os.environ.update(environment)
    flags = as_flags(values, vars(make_arg_parser(FlexibleArgumentParser()).parse_args([])))
    command = python_module(SERVER, *flags, *shlex.split(os.environ[OPTIONS]), python=os.environ[PYTHON])
    os.execve(command[0], command, engine_environment(os.environ, "cpu", 0) | {"PYTHONPATH": str(_PACKAGE.parent)})


def as_flags(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """The command line that sets those ``values`` which are not vLLM's ``defaults``."""
    flags: list[str] = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if value == defaults.get(name):
            continue
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            items = value if isinstance(value, list | tuple | set) else [value]
            flags += [f"--{flag}", *(json.dumps(item) if isinstance(item, dict) else str(item) for item in items)]
    return flags


def start_engines_on_cpu(module: Any) -> None:
    module._run_vllm_server = start
