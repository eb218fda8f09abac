"""Everything a launch is made of, settled before anything starts.

Reads files and asks machines; writes nothing. What is refused here cannot work at all; what may work on another day
(a full disk, a taken port) is in ``preflight.py``.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ..agents.longest_turn import longest_turn
from ..checkpoints.hf_model import load_vocabulary, local_folder, refuse_foreign_code, with_engine_length
from ..config import Config, ConfigError
from ..hooks.plugins import check_plugins
from . import reference
from .answer_engine import check_gpus, models_yaml
from .arguments import build_arguments, keeps_policy
from .checkout import (
    BEFORE_STEP,
    TRAINER_INIT,
    Checkout,
    check_policy_can_be_kept,
    check_version,
    find_checkout,
    find_megatron,
)
from .layout import GIB, Gpus, Layout, derive_layout
from .machine import find_gpus, has_nvlink, has_sticky_router
from .model_args import ModelSize, model_args, model_size, read_model_config
from .one_file import with_store
from .worker_env import worker_variables

T = TypeVar("T")
PACK = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Plan:
    """What a launch runs, and with what."""

    config: Config
    """Paths absolute, host named, engine length and layout filled in."""
    checkout: Checkout
    family: str
    model_arguments: list[str]
    size: ModelSize
    layout: Layout
    python_path: str
    variables: Mapping[str, str]
    arguments: Mapping[str, list[str]]
    host_settings: Mapping[str, Any] = field(default_factory=dict)
    """What the workers' YAML says to the host beside the config."""
    cpus: int = 0
    """Logical CPUs of the Ray head; 0: those of the machine."""

    @property
    def folder(self) -> Path:
        """Where the records of what the run was made of stay."""
        return Path(self.config.save_path) / "launch"

    @property
    def models(self) -> str:
        """The file that names the models to be served; empty where it is the policy alone."""
        return models_yaml(self.config, self.checkout.name, self.layout) if self.config.serves_answers else ""

    @property
    def command(self) -> list[str]:
        driver = self.checkout.driver(self.config.fully_async)
        return [sys.executable, str(driver), *(item for group in self.arguments.values() for item in group)]

    def conversion(self, output: Path) -> list[str]:
        """The command that writes the reference model as torch_dist into ``output``."""
        return reference.conversion_command(self.config, self.checkout, self.model_arguments, output)


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
    _tolerated(problems, lambda: _check_settings(config), None)
    megatron = _tolerated(problems, lambda: str(find_megatron(config)), config.megatron_root or "MEGATRON_ROOT")
    model_folder = local_folder(config.hf_ckpt, weights=weights).expanduser().absolute()
    content = read_model_config(model_folder)
    if model is None:
        family, model = model_args(checkout.model_scripts, config.model_family, content)
    else:
        family = config.model_family
    refuse_foreign_code(model_folder, config.trust_remote_code)
    vocabulary = load_vocabulary(model_folder, config.trust_remote_code)
    config = with_engine_length(config.with_absolute_paths(), model_folder, vocabulary)
    config = replace(
        with_store(config), host=checkout.name, host_root=str(checkout.root), megatron_root=megatron,
        hf_ckpt=str(model_folder), torch_dist=str(reference.default_folder(config)), model_family=family,
        answer_ckpt=_answering(config, weights),
    )
    # or nothing; anything else is refused
    _tolerated(problems, lambda: reference.has_checkpoint(Path(config.torch_dist)), False)
    size = model_size(content)
    if layout is None:
        declared = Gpus(config.num_nodes, config.num_gpus, config.gpu_memory_gb * GIB)
        tolerated = problems if declared.total and declared.memory else None
        found = _tolerated(tolerated, lambda: find_gpus(config), declared)
        layout = derive_layout(size, found, longest_turn(config, vocabulary), config)
    _tolerated(problems, lambda: check_gpus(config, layout), None)
    if keeps_policy(config, layout):
        _tolerated(problems, lambda: check_policy_can_be_kept(checkout), None)
        _tolerated(problems, lambda: _check_trainer_init(config), None)
    config = replace(config, tp=layout.tp, pp=layout.pp, cp=layout.cp, max_tokens_per_gpu=layout.tokens_per_gpu,
                     engine_gpus=layout.engine_gpus, num_gpus=layout.gpus_per_node)
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


def _answering(config: Config, weights: bool) -> str:
    """The folder of the frozen chat model where one is served; engines know their model by it."""
    if not config.serves_answers:
        return config.answer_ckpt
    folder = local_folder(config.answer_ckpt, "ANSWER_CKPT", weights=weights).expanduser().absolute()
    refuse_foreign_code(folder, config.trust_remote_code)
    return str(folder)


def _tolerated(problems: list[str] | None, step: Callable[[], T], otherwise: T) -> T:
    try:
        return step()
    except ConfigError as error:
        if problems is None:
            raise
        problems.append(str(error))
        return otherwise


_REFUSED_ARGUMENTS = {
    "--partial-rollout": "a multi-turn trajectory cannot be continued",
    "--group-rm": "rewards are given by trajectory",
    "--apply-chat-template": "the rendered chat would become the question",
    "--multimodal-keys": "agents show text alone",
    "--log-passrate": "it counts rows, not trajectories",
    "--rollout-top-p": "training needs the log-probs of the whole vocabulary",
    "--wandb-key": "it would be shown on Ray's pages; set WANDB_API_KEY",
    "--tensor-model-parallel-size": "set TP",
    "--pipeline-model-parallel-size": "set PP",
    "--context-parallel-size": "set CP",
    "--use-checkpoint-opt-param-scheduler": "a continued run has the schedule of its settings",
    "--max-tokens-per-gpu": "set MAX_TOKENS_PER_GPU",
}


def _check_settings(config: Config) -> None:
    if config.supervised and config.fully_async:
        raise ConfigError("LOSS=sft samples nothing that FULLY_ASYNC=1 could wait for; set FULLY_ASYNC=0")
    if config.supervised and config.eval_interval:
        raise ConfigError(f"EVAL_INTERVAL={config.eval_interval}: LOSS=sft runs without engines here; set "
                          "EVAL_INTERVAL=0, and evaluate the converted model with run-eval.sh")
    if config.lora_rank:
        raise ConfigError(f"LORA_RANK={config.lora_rank}: adapters are the embedded host's; set LORA_RANK=0, or "
                          "HOST=local")
    asynchronous = {
        "the hosts' asynchronous rollout ignores filters; set DYNAMIC_FILTER=none": config.dynamic_filter != "none",
        "it has no over-sampling; unset OVER_SAMPLING_BATCH_SIZE": config.over_sampling_batch_size > 0,
        "its worker holds the engines of which evaluation needs some; set EVAL_INTERVAL=0": config.eval_interval > 0,
    }
    for reason, wanted in asynchronous.items():
        if config.fully_async and wanted:
            raise ConfigError(f"FULLY_ASYNC=1: {reason}")
    check_ray_address(config)
    try:
        given = shlex.split(config.host_args)
    except ValueError as error:
        raise ConfigError(f"HOST_ARGS={config.host_args!r}: {error}; quote it as in a shell") from None
    for flag, reason in _REFUSED_ARGUMENTS.items():
        if any(item.partition("=")[0] == flag for item in given):
            raise ConfigError(f"HOST_ARGS: {flag} cannot be used: {reason}")
    if config.lr_warmup_rollouts and any(item.partition("=")[0] == BEFORE_STEP for item in given):
        raise ConfigError(f"HOST_ARGS: {BEFORE_STEP} would replace the pack's own, which LR_WARMUP_ROLLOUTS="
                          f"{config.lr_warmup_rollouts} needs; leave it out, or set LR_WARMUP_STEPS in its place")


def check_ray_address(config: Config) -> None:
    if config.ray_address and not config.ray_address.startswith(("http://", "https://")):
        raise ConfigError(f"RAY_ADDRESS={config.ray_address!r}: give its job server's address, http://HEAD:8265")


def _check_trainer_init(config: Config) -> None:
    if any(item.partition("=")[0] == TRAINER_INIT for item in shlex.split(config.host_args)):
        raise ConfigError(f"HOST_ARGS: {TRAINER_INIT} would replace the pack's own, without which a continued run of "
                          "FULLY_ASYNC=1 samples from the reference first; leave it out, or set KL_COEF=0")


def _user_path() -> list[str]:
    """PYTHONPATH as the user set it, without the folder by which the scripts make this pack importable."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = os.environ.get("MEM_AGENT_IMPORT")
    return [str(Path(entry).absolute()) for entry in entries if entry and entry != own]
