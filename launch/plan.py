"""Everything a launch is made of, settled before anything starts.

Reads files and asks machines; writes nothing. What would stop or spoil the run, and leaves a plan that a dry run can
show, is checked in ``preflight.py``.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..agents import longest_turn
from ..agents.vocabulary import Vocabulary
from ..checkpoints.folders import TRACKER
from ..checkpoints.hf_model import load_vocabulary, local_folder, refuse_foreign_code, with_engine_length
from ..config import Config, ConfigError
from ..hooks.plugins import check_plugins
from ..system.python_command import python_module
from .arguments import build_arguments
from .checkout import Checkout, find_checkout, find_megatron
from .layout import GIB, Gpus, Layout, derive_layout
from .model_args import ModelSize, model_args, model_size, read_model_config
from .ray_job import RAY_PORTS, machines, worker_variables

logger = logging.getLogger("mem_agent")
PACK = Path(__file__).resolve().parents[1]
ASSUMED_GIB = 80
"""Memory of a GPU that is not here to be asked."""


@dataclass(frozen=True)
class Plan:
    """What a launch runs, and with what."""

    config: Config
    """Paths absolute, host named, engine length and layout filled in."""
    checkout: Checkout
    family: str
    """Of the host's model scripts; empty where the model is described by its ``config.json``."""
    size: ModelSize
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
        driver = self.checkout.driver(self.config.fully_async)
        return [sys.executable, str(driver), *(item for group in self.arguments.values() for item in group)]

    @property
    def has_reference(self) -> bool:
        """Whether TORCH_DIST holds the reference model; it is converted otherwise."""
        return (Path(self.config.torch_dist) / TRACKER).is_file()

    @property
    def conversion(self) -> list[str]:
        """The command that writes the reference model as torch_dist; it appears when it is whole."""
        writer = "mem_agent.checkpoints.hf_to_torch_dist"
        return python_module(writer, "--hf", self.config.hf_ckpt, "--output", self.config.torch_dist)


def make_plan(
    config: Config, *, weights: bool = True, model: list[str] | None = None, layout: Layout | None = None
) -> Plan:
    """Settle every setting.

    Args:
        weights: load the weights as well if HF_CKPT is a hub id; its configuration and tokenizer always are.
        model: Megatron's description of the model, if no script of the host is to be asked.
        layout: how GPUs are used, if that is not to be derived from those found.

    Raises:
        ConfigError: no plan can be made; the message says why and the remedy.
    """
    checkout = find_checkout(config, PACK)
    check_plugins(config)
    model_folder = local_folder(config.hf_ckpt, weights=weights).expanduser().absolute()
    content, family = read_model_config(model_folder), ""
    if model is None:
        family, model = model_args(checkout.root / "scripts" / "models", content)
    vocabulary = _load_vocabulary(model_folder, config)
    reference = _reference_folder(config)
    config = with_engine_length(config.with_absolute_paths(), model_folder, vocabulary).replace(
        host=checkout.name, host_root=str(checkout.root), megatron_root=str(find_megatron(config)),
        hf_ckpt=str(model_folder), torch_dist=str(reference),
    )
    size = model_size(content)
    layout = layout or derive_layout(size, find_gpus(config), longest_turn(config, vocabulary), config)
    config = config.replace(tp=layout.tp, max_tokens_per_gpu=layout.tokens_per_gpu, num_gpus=layout.gpus_per_node)
    folder = Path(config.save_path) / "launch"
    users = [str(Path(entry).absolute()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    path = dict.fromkeys([str(folder / "import"), config.megatron_root, config.host_root, *users])
    variables = worker_variables(
        os.environ, python_path=os.pathsep.join(path), save_path=config.save_path, master_addr=config.master_addr,
        nvlink=has_nvlink(),
    )
    sticky = checkout.name == "slime" and has_sticky_router()
    arguments = build_arguments(config, checkout, model, layout, folder / "mem_agent.yaml", sticky)
    hooks = [flag for flag in arguments["hooks"] if flag.startswith("--")]
    checkout.check_version(config, [*hooks, "--num-steps-per-rollout", "--use-dynamic-batch-size"])
    return Plan(config, checkout, family, size, layout, variables, arguments)


def _load_vocabulary(folder: Path, config: Config) -> Vocabulary:
    """The model's tokenizer, without torch where it is not loaded yet: a dry run would mostly wait for that."""
    refuse_foreign_code(folder, config.trust_remote_code)
    if "torch" in sys.modules:
        return load_vocabulary(folder, config.trust_remote_code)
    sys.modules["torch"] = None  # type: ignore[assignment]
    logging.disable(logging.WARNING)  # transformers would say that it is missing
    try:
        return load_vocabulary(folder, config.trust_remote_code)
    finally:
        del sys.modules["torch"]
        logging.disable(logging.NOTSET)


def _reference_folder(config: Config) -> Path:
    """TORCH_DIST, or as the hosts do: beside the Hugging Face folder, with ``_torch_dist``; SAVE_PATH for a hub id."""
    model = Path(config.hf_ckpt).expanduser()
    beside = model.absolute() if model.is_dir() else Path(config.save_path) / model.name
    return Path(config.torch_dist or f"{beside}_torch_dist").expanduser().absolute()


def find_gpus(config: Config) -> Gpus:
    """NUM_GPUS, or what nvidia-smi or the Ray cluster say; memory by nvidia-smi.

    Raises:
        ConfigError: no GPU is found and none is declared.
    """
    memories = nvidia_smi("--query-gpu=memory.total", "--format=csv,noheader,nounits").splitlines()
    per_node = config.num_gpus or len(memories)
    if config.ray_address and not config.num_gpus:
        per_node = [*machines(config.ray_address), *[0] * config.num_nodes][config.num_nodes - 1]
    if not per_node:
        where = f"machines of RAY_ADDRESS={config.ray_address}" if config.ray_address else "machines"
        raise ConfigError(f"NUM_GPUS=0, and no GPU was found on NUM_NODES={config.num_nodes} {where}; set NUM_GPUS "
                          "to those of one machine, lower NUM_NODES, or set HOST=local")
    memory = min((int(m) for m in memories if m.isdecimal()), default=0) * 2**20
    if not memory:
        logger.warning("nvidia-smi reports no GPU memory; assuming %d GiB per GPU", ASSUMED_GIB)
    return Gpus(config.num_nodes, per_node, memory or ASSUMED_GIB * GIB)


def has_nvlink() -> bool:
    return re.search(r"\bNV\d+\b", nvidia_smi("topo", "-m")) is not None


def nvidia_smi(*arguments: str) -> str:
    """Its output; empty if it is missing, fails or hangs, as with a hung driver."""
    if shutil.which("nvidia-smi") is None:
        return ""
    try:
        done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout if done.returncode == 0 else ""


def has_sticky_router() -> bool:
    """Whether this Python's sglang-router knows how to choose an engine for a new key (0.3.2 and later)."""
    if importlib.util.find_spec("sglang_router") is None:
        return False
    router_args = importlib.import_module("sglang_router.launch_router").RouterArgs
    return "assignment_mode" in {field.name for field in dataclasses.fields(router_args)}
