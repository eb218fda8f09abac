"""What vime needs beyond ``torch.cuda``: vLLM's NCCL weight transfer, vLLM 0.23's places for its modules, and a server
for this CPU: its command with the pack's CPU options, in the pack's own Python.

    trainer    its half of the weight transfer, over gloo; the engine's is ``vllm_weights``
    addresses  loopback: a server of the machine's own address would be open to its network
    engine     vime either runs ``vllm serve MODEL --flag ...``, for which ``bin/vllm`` stands first on PATH, or calls
               vLLM in a child process with the flags' values; both end in ``start``, which replaces the process: its
               pid stays the one vime ends
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
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
from typing import Any

import torch
import torch.distributed as dist

from ..config import Config
from ..serving.servers import SERVER, engine_environment, engine_options
from ..system.python_command import python_module

MOVED = {"vllm.entrypoints.openai.cli_args": "vllm.entrypoints.launchers.cli_args"}
"""Modules of vLLM 0.23 and their places in 0.32."""


class MovedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last on ``sys.meta_path``: where no module of the old name is found, importing it gives the one of the new."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(MOVED[module.__name__])


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


def log_devices(module: ModuleType) -> None:
    """vime writes the current device as the number that it is on a GPU."""

    def number(record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(0 if isinstance(item, torch.device) else item for item in record.args)
        return True

    module.logger.addFilter(number)


def stay_on_this_machine(module: ModuleType) -> None:
    """Ray's head answers with the machine's own address even where it is told 127.0.0.1."""
    module.get_current_node_ip = lambda: "127.0.0.1"  # type: ignore[attr-defined]


def start_engines_on_cpu(module: ModuleType) -> None:
    if hasattr(module, "_run_vllm_server"):
        module._run_vllm_server = start_with  # type: ignore[attr-defined]


# --- the engine ------------------------------------------------------------------------------------------------------

PYTHON = "MEM_AGENT_ENGINE_PYTHON"
"""Variable: the Python that has vLLM for this machine."""
OPTIONS = "MEM_AGENT_ENGINE_OPTIONS"
"""Variable: flags for the server that win over those of vime, as a shell would read them."""

_DROPPED = {"--gpu-memory-utilization"}
_PACKAGE = Path(__file__).parents[1]
"""Not resolved: the folder around it makes this pack importable by its name."""


def engine_variables(config: Config, python: str) -> dict[str, str]:
    """What a job's processes need in order to start servers with ``python``, but for ``bin/`` on their PATH."""
    extension = ["--worker-extension-cls", "mem_agent.rehearsal.vllm_weights.GlooWeights"]
    return {PYTHON: python, OPTIONS: shlex.join([*engine_options(config, "cpu"), *extension])}


def start(model: str, flags: Sequence[str]) -> None:
    """Become the server of ``model``; does not return."""
    command = python_module(SERVER, "--model", model, python=os.environ[PYTHON])
    command += on_cpu(flags, shlex.split(os.environ[OPTIONS]))
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


def on_cpu(flags: Sequence[str], options: Sequence[str]) -> list[str]:
    """``flags`` without what asks for a GPU, and with ``options`` in the place of their own values."""
    groups = _by_flag(flags)
    own = _by_flag(options)
    kept = {flag: values for flag, values in groups.items() if flag not in own and flag not in _DROPPED}
    if "--weight-transfer-config" in kept:
        kept["--weight-transfer-config"] = [json.dumps({"backend": "gloo"})]
    return [item for flag, values in (kept | own).items() for item in (flag, *values)]


def _by_flag(items: Sequence[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for item in items:
        if item.startswith("--"):
            groups[item] = []
        else:
            groups[next(reversed(groups))].append(item)
    return groups


def as_flags(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """The command line that sets those ``values`` which are not vLLM's ``defaults``."""
    flags: list[str] = []
    for name, value in values.items():
        if value == defaults.get(name):
            continue
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, dict):
            flags += [f"--{flag}", json.dumps(value)]
        elif isinstance(value, list | tuple | set):
            flags += [f"--{flag}", *map(str, value)]
        else:
            assert isinstance(value, str | int | float), f"{name}={value!r} cannot be said on a command line"
            flags += [f"--{flag}", str(value)]
    return flags


if __name__ == "__main__":
    assert sys.argv[1] == "serve", f"a rehearsal has only `vllm serve`: {shlex.join(sys.argv)}"
    start(sys.argv[2], sys.argv[3:])
