"""Everything a launch is made of, settled before anything starts.

Reads files and asks this machine; writes nothing. What would stop or spoil the run, and leaves a plan that a dry run
can show, is checked in ``preflight.py``.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..agents import longest_turn
from ..checkpoints.folders import TRACKER
from ..checkpoints.hf_model import load_vocabulary, local_folder, refuse_foreign_code, with_engine_length
from ..config import Config, ConfigError
from ..hooks.rewards import check_plugins
from ..system.cli import python_module
from .arguments import build_arguments
from .find_host import HOSTS, find_host, imported_root
from .layout import GIB, Layout, derive_layout
from .model_args import describe, read_model_config
from .ray_job import RAY_PORTS, worker_variables

logger = logging.getLogger("mem_agent")
PACK = Path(__file__).resolve().parents[1]
ASSUMED_GIB = 80
"""Memory of a GPU that is not here to be asked."""


@dataclass(frozen=True)
class Plan:
    """What a launch runs, and with what."""

    config: Config
    """Paths absolute, host named, engine length and layout filled in."""
    layout: Layout
    variables: Mapping[str, str]
    """The environment of every worker."""
    arguments: Mapping[str, list[str]]
    """Of the host's driver, by group."""
    host_settings: Mapping[str, Any] = field(default_factory=dict)
    """What the workers' YAML says to the host beside the config."""
    ports: tuple[int, int] = RAY_PORTS
    """Of the Ray head and of its job server; the server's agent takes the next."""
    cpus: int = 0
    """Logical CPUs of the Ray head; 0: those of the machine."""

    @property
    def folder(self) -> Path:
        """Where the records of what the run was made of stay."""
        return Path(self.config.save_path) / "launch"

    @property
    def command(self) -> list[str]:
        driver = Path(self.config.host_root, "train_async.py" if self.config.fully_async else "train.py")
        return [sys.executable, str(driver), *(item for group in self.arguments.values() for item in group)]

    @property
    def conversion(self) -> list[str]:
        """The command that writes the reference model, which appears when it is whole; none if TORCH_DIST holds it."""
        if (Path(self.config.torch_dist) / TRACKER).is_file():
            return []
        files = ["--hf", self.config.hf_ckpt, "--output", self.config.torch_dist]
        return python_module("mem_agent", "hf-to-torch-dist", *files)


def make_plan(
    config: Config, *, weights: bool = True, model: list[str] | None = None, layout: Layout | None = None
) -> Plan:
    """Settle every setting.

    Args:
        weights: load the weights as well if HF_CKPT is a hub id; its configuration and tokenizer always are.
        model: Megatron's description of the model, if it is not that of HF_CKPT.
        layout: how GPUs are used, if that is not to be derived from those found.

    Raises:
        ConfigError: no plan can be made; the message says why and the remedy.
    """
    try:
        host, root = find_host(config.host, config.host_root, PACK)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if root is None:
        raise ConfigError(f"HOST={config.host}: no checkout of {' or '.join(HOSTS)} is around {PACK}; set HOST_ROOT")
    check_plugins(config)
    folder = local_folder(config.hf_ckpt, weights=weights).expanduser().absolute()
    content = read_model_config(folder)
    refuse_foreign_code(folder, config.trust_remote_code)
    vocabulary = load_vocabulary(folder, config.trust_remote_code)
    # As the hosts do: beside the Hugging Face folder; of a hub id not in its cache.
    given = Path(config.hf_ckpt).expanduser()
    beside = folder if given.is_dir() else Path(config.save_path) / given.name
    reference = Path(config.torch_dist or f"{beside}_torch_dist").expanduser().absolute()
    config = with_engine_length(config.with_absolute_paths(), folder, vocabulary).replace(
        host=host, host_root=str(root), megatron_root=str(find_megatron(config)), hf_ckpt=str(folder),
        torch_dist=str(reference),
    )
    layout = layout or derive_layout(content, *find_gpus(config), longest_turn(config, vocabulary), config)
    config = config.replace(tp=layout.tp, max_tokens_per_gpu=layout.tokens_per_gpu, num_gpus=layout.gpus_per_node)
    records = Path(config.save_path) / "launch"
    users = [str(Path(entry).absolute()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    path = dict.fromkeys([str(records / "import"), config.megatron_root, config.host_root, *users])
    variables = worker_variables(os.environ, config, os.pathsep.join(path))
    arguments = build_arguments(config, model or describe(content), layout, records / "mem_agent.yaml")
    # A host ignores flags that it does not know, and would train in another way.
    known = (root / host / "utils" / "arguments.py").read_text()
    if lacks := [flag for flag in arguments["hooks"] if flag.startswith("--") and f'"{flag}"' not in known]:
        raise ConfigError(f"HOST_ROOT={config.host_root!r}: this version of {host} lacks {', '.join(lacks)}; use a "
                          "later one (docs/hosts.md names the tested commits)")
    return Plan(config, layout, variables, arguments)


def find_megatron(config: Config) -> Path:
    """The Megatron-LM checkout whose ``megatron.training`` the host imports; ``preflight`` tells where it is none."""
    if config.megatron_root:
        return Path(config.megatron_root).expanduser().absolute()
    candidates = [Path("/root/Megatron-LM"), *imported_root("megatron")]
    return next((root for root in candidates if (root / "megatron" / "training").is_dir()), candidates[0])


def find_gpus(config: Config) -> tuple[int, float]:
    """(GPUs of a machine, bytes of each): NUM_GPUS, and what nvidia-smi says.

    Raises:
        ConfigError: no GPU is found and none is declared.
    """
    memories = nvidia_smi("--query-gpu=memory.total", "--format=csv,noheader,nounits").splitlines()
    if not (per_node := config.num_gpus or len(memories)):
        raise ConfigError("NUM_GPUS=0, and no GPU was found here; set NUM_GPUS to those of one machine, or HOST=local")
    memory = min((int(m) for m in memories if m.isdecimal()), default=0) * 2**20
    if not memory:
        logger.warning("nvidia-smi reports no GPU memory; assuming %d GiB per GPU", ASSUMED_GIB)
    return per_node, memory or ASSUMED_GIB * GIB


def nvidia_smi(*arguments: str) -> str:
    """Its output; empty if it is missing or fails."""
    if shutil.which("nvidia-smi") is None:
        return ""
    done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else ""
