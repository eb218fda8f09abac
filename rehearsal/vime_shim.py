"""What vime needs beyond ``torch.cuda``: vLLM's NCCL weight transfer, vLLM 0.23's places for its modules, and a server
for this CPU.

    trainer    its half of the weight transfer, over gloo; the engine's is ``vllm_weights``
    engine     its command with the pack's CPU options, in the pack's own Python

vime either runs ``vllm serve MODEL --flag ...``, for which ``bin/vllm`` stands first on PATH, or calls vLLM in a child
process with the flags' values; both end in ``start``, which replaces the process: its pid stays the one vime ends.
torch is imported where it is used, as ``bin/vllm`` does without.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import shlex
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..config import Config
from ..serving.servers import SERVER, engine_environment, engine_options
from ..system.cli import python_module

if TYPE_CHECKING:
    import torch

PYTHON = "MEM_AGENT_ENGINE_PYTHON"
"""Variable: the Python that has vLLM for this machine."""
OPTIONS = "MEM_AGENT_ENGINE_OPTIONS"
"""Variable: flags for the server behind those of vime, as a shell reads them; of two of one name the last wins."""
_PACKAGE = Path(__file__).parents[1]
"""Not resolved: the folder around it makes this pack importable by its name."""

# --- weights ---------------------------------------------------------------------------------------------------------

_LOOPBACK = "127.0.0.1"
"""Whatever address a host names, its own perhaps, which is open to its network: all members are on this machine."""
_PATIENCE = timedelta(minutes=5)


class WeightGroup:
    """Rank 0, the trainer, sends; all others receive. Constructing it waits for all ``world_size`` members."""

    def __init__(self, port: int, rank: int, world_size: int) -> None:
        import torch.distributed as dist

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
        from torch.distributed import BroadcastOptions

        options = BroadcastOptions()
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


# --- an older vLLM and a GPU -----------------------------------------------------------------------------------------

def keep_old_places(_: ModuleType) -> None:
    """A module of vLLM 0.23 is elsewhere in 0.32."""
    new = importlib.import_module("vllm.entrypoints.launchers.cli_args")
    sys.modules["vllm.entrypoints.openai.cli_args"] = new


def log_devices(module: Any) -> None:
    """vime writes the current device as the number that it is on a GPU."""

    import torch

    def number(record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(0 if isinstance(item, torch.device) else item for item in record.args)
        return True

    module.logger.addFilter(number)


# --- the server ------------------------------------------------------------------------------------------------------

def engine_variables(config: Config, python: str) -> dict[str, str]:
    """What a job's processes need in order to start servers with ``python``, except ``bin/`` on their PATH."""
    weights = ["--worker-extension-cls", "mem_agent.rehearsal.vllm_weights.GlooWeights",
               "--weight-transfer-config", json.dumps({"backend": "gloo"})]
    return {PYTHON: python, OPTIONS: shlex.join([*engine_options(config, "cpu"), *weights])}


def start(model: str, flags: Sequence[str]) -> None:
    """Become the server of ``model``; does not return."""
    options = shlex.split(os.environ[OPTIONS])
    command = python_module(SERVER, "--model", model, *flags, *options, python=os.environ[PYTHON])
    print("vLLM on this CPU:", shlex.join(command), flush=True)
    environment = engine_environment(os.environ, "cpu", 0) | {"PYTHONPATH": str(_PACKAGE.parent)}
    os.execve(command[0], command, environment)


def start_with(values: dict[str, Any], environment: dict[str, str]) -> None:
    """Become the server described by the values of vLLM's flags, by name, as a host's child process."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    os.environ.update(environment)
    defaults = vars(make_arg_parser(FlexibleArgumentParser()).parse_args([]))
    start(values["model"], as_flags({k: v for k, v in values.items() if k != "model"}, defaults))


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
    if hasattr(module, "_run_vllm_server"):
        module._run_vllm_server = start_with


if __name__ == "__main__":
    assert sys.argv[1] == "serve", f"a rehearsal has only `vllm serve`: {shlex.join(sys.argv)}"
    start(sys.argv[2], sys.argv[3:])
