"""Everything a launch is made of, settled before anything starts.

Reads files and asks machines; writes nothing. What is refused here cannot work at all; what may work on another day
(a full disk, a taken port) is in ``preflight.py``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..agents import longest_turn
from ..checkpoints.folders import TRACKER
from ..checkpoints.hf_model import load_vocabulary, local_folder, refuse_foreign_code, with_engine_length
from ..config import Config, ConfigError
from ..hooks.plugins import check_plugins, refuse_ignored
from ..system.python_command import python_module
from . import host_args
from .arguments import build_arguments, keeps_policy
from .checkout import Checkout, check_policy_can_be_kept, check_version, find_checkout, find_megatron
from .layout import Gpus, Layout, derive_layout
from .machine import ASSUMED_GIB, find_gpus, has_nvlink, has_sticky_router
from .model_args import ModelSize, model_args, model_size, read_model_config
from .ray_job import RAY_PORTS, worker_variables

T = TypeVar("T")
PACK = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Plan:
    """What a launch runs, and with what."""

    config: Config
    """Paths absolute, host named, engine length and layout filled in."""
    checkout: Checkout
    family: str
    """Of the host's model scripts; empty where the model is described by its ``config.json``."""
    model_arguments: list[str]
    size: ModelSize
    layout: Layout
    python_path: str
    variables: Mapping[str, str]
    arguments: Mapping[str, list[str]]
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
    def conversion(self) -> list[str]:
        """The command that writes the reference model as torch_dist; it appears when it is whole."""
        writer = "mem_agent.checkpoints.hf_to_torch_dist"
        return python_module(writer, "--hf", self.config.hf_ckpt, "--output", self.config.torch_dist)


def make_plan(
    config: Config,
    *,
    weights: bool = True,
    problems: list[str] | None = None,
    model: list[str] | None = None,
    layout: Layout | None = None,
) -> Plan:
    """Settle every setting.

    Args:
        weights: load the weights as well if HF_CKPT is a hub id; its configuration and tokenizer always are.
        problems: takes what cannot work but leaves a plan to be shown; None: that is raised as well.
        model: Megatron's description of the model, if no script of the host is to be asked.
        layout: how GPUs are used, if that is not to be derived from those found.

    Raises:
        ConfigError: something cannot work; the message says what and the remedy.
    """
    checkout = find_checkout(config, PACK)
    check_version(checkout, config)  # before a script of it is run
    _tolerated(problems, lambda: check_plugins(config), None)
    _tolerated(problems, lambda: refuse_ignored(config, checkout.name), None)
    _tolerated(problems, lambda: _check_settings(config), None)
    megatron = _tolerated(problems, lambda: str(find_megatron(config)), config.megatron_root or "MEGATRON_ROOT")
    model_folder = local_folder(config.hf_ckpt, weights=weights).expanduser().absolute()
    content, family = read_model_config(model_folder), ""
    if model is None:
        family, model = model_args(checkout.model_scripts, content)
    refuse_foreign_code(model_folder, config.trust_remote_code)
    vocabulary = load_vocabulary(model_folder, config.trust_remote_code)
    config = with_engine_length(config.with_absolute_paths(), model_folder, vocabulary)
    config = config.replace(
        host=checkout.name, host_root=str(checkout.root), megatron_root=megatron, hf_ckpt=str(model_folder),
        torch_dist=str(_reference_folder(config)),
    )
    # or nothing; anything else is refused
    _tolerated(problems, lambda: has_checkpoint(Path(config.torch_dist)), False)
    size = model_size(content)
    if layout is None:
        declared = Gpus(config.num_nodes, config.num_gpus, ASSUMED_GIB * 2**30)
        tolerated = problems if config.num_gpus else None
        found = _tolerated(tolerated, lambda: find_gpus(config), declared)
        layout = derive_layout(size, found, longest_turn(config, vocabulary), config)
    if keeps_policy(config, layout):
        _tolerated(problems, lambda: check_policy_can_be_kept(checkout), None)
        _tolerated(problems, lambda: _check_trainer_init(config), None)
    config = config.replace(tp=layout.tp, max_tokens_per_gpu=layout.tokens_per_gpu, num_gpus=layout.gpus_per_node)
    folder = Path(config.save_path) / "launch"
    entries = [str(folder / "import"), config.megatron_root, config.host_root, *_user_path()]
    python_path = os.pathsep.join(dict.fromkeys(entries))
    variables = worker_variables(
        os.environ, python_path=python_path, save_path=config.save_path, master_addr=config.master_addr,
        nvlink=has_nvlink(),
    )
    sticky = checkout.name == "slime" and has_sticky_router()
    arguments = build_arguments(config, checkout, model, layout, folder / "mem_agent.yaml", sticky)
    return Plan(config, checkout, family, model, size, layout, python_path, variables, arguments)


def has_checkpoint(folder: Path) -> bool:
    """Whether ``folder`` holds a torch_dist checkpoint.

    Raises:
        ConfigError: it holds something else; what a conversion that was killed has left is no hindrance.
    """
    if (folder / TRACKER).is_file():
        return True
    if folder.exists() and any(child.name != "release" and child.name[0] != "." for child in folder.iterdir()):
        raise ConfigError(f"TORCH_DIST={str(folder)!r}: holds files, but no checkpoint; name another folder")
    return False


def _reference_folder(config: Config) -> Path:
    """TORCH_DIST, or as the hosts do: beside the Hugging Face folder, with ``_torch_dist``; SAVE_PATH for a hub id."""
    model = Path(os.path.expanduser(config.hf_ckpt))
    beside = model.absolute() if model.is_dir() else Path(config.save_path) / model.name
    return Path(os.path.expanduser(config.torch_dist or f"{beside}_torch_dist")).absolute()


def _tolerated(problems: list[str] | None, step: Callable[[], T], otherwise: T) -> T:
    try:
        return step()
    except ConfigError as error:
        if problems is None:
            raise
        problems.append(str(error))
        return otherwise


def _check_settings(config: Config) -> None:
    host_args.check(config)
    check_ray_address(config)
    wrong = {
        "LOSS=sft samples nothing that FULLY_ASYNC=1 could wait for; set FULLY_ASYNC=0":
            config.supervised and config.fully_async,
        f"EVAL_INTERVAL={config.eval_interval}: LOSS=sft runs without engines here; set EVAL_INTERVAL=0, and evaluate "
        "the converted model with run-eval.sh": config.supervised and config.eval_interval,
        "FULLY_ASYNC=1: the hosts' asynchronous rollout ignores filters; set DYNAMIC_FILTER=none":
            config.fully_async and config.dynamic_filter != "none",
        "FULLY_ASYNC=1: the hosts' asynchronous rollout has no over-sampling; unset OVER_SAMPLING_BATCH_SIZE":
            config.fully_async and config.over_sampling_batch_size,
        "FULLY_ASYNC=1: its worker holds the engines that an evaluation would need; set EVAL_INTERVAL=0":
            config.fully_async and config.eval_interval,
    }
    for message, is_so in wrong.items():
        if is_so:
            raise ConfigError(message)


def check_ray_address(config: Config) -> None:
    if config.ray_address and not config.ray_address.startswith(("http://", "https://")):
        raise ConfigError(f"RAY_ADDRESS={config.ray_address!r}: give its job server's address, http://HEAD:8265")


def _check_trainer_init(config: Config) -> None:
    if host_args.TRAINER_INIT in host_args.given_flags(config):
        raise ConfigError(f"HOST_ARGS: {host_args.TRAINER_INIT} would replace the pack's own; without that a "
                          "continued run of FULLY_ASYNC=1 samples from the reference first: leave it out, or set "
                          "KL_COEF=0")


def _user_path() -> list[str]:
    """PYTHONPATH as the user set it, without the folder by which the scripts make this pack importable."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = os.environ.get("MEM_AGENT_IMPORT")
    return [str(Path(entry).absolute()) for entry in entries if entry and entry != own]
