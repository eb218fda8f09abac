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
"""Variable: flags for the server behind those of vime, as a shell reads them; of two of one name the last wins."""
_PACKAGE = Path(__file__).parents[1]
"""Not resolved: the folder around it makes this pack importable by its name."""


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


if __name__ == "__main__":
    assert sys.argv[1] == "serve", f"a rehearsal has only `vllm serve`: {shlex.join(sys.argv)}"
    start(sys.argv[2], sys.argv[3:])
