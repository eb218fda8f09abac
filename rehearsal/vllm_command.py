"""The vLLM server that vime starts, on a CPU: its command with the pack's CPU options, in the pack's own Python.

vime either runs ``vllm serve MODEL --flag ...``, for which ``bin/vllm`` stands first on PATH, or calls vLLM in a child
process with the flags' values; both end in ``start``, which replaces the process: its pid stays the one vime ends.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config import Config
from ..serving.servers import SERVER, engine_environment, engine_options
from ..system.python_command import python_module

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
