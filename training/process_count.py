"""TRAIN_PROCS=0: how many processes train a model on a machine.

A second copy of a small model costs its start (the imports, half a gigabyte) and saves less: the pocket model is
trained by one. A larger one keeps every core busy in its matrix products, and processes do that better than OpenMP's
threads, which wait for each other at every operation. Two copies are what was measured, so no more are started.

On GPUs there is one copy, as nothing else was measured; TRAIN_PROCS sets another number.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..checkpoints.hf_model import model_config, parameter_count
from ..config import SETTINGS_FILE, Config, ConfigError, read_yaml

WORTH_A_PROCESS = 50_000_000
"""Parameters from which on a second copy pays."""
MOST_COPIES = 2
BYTES_PER_PARAMETER = 24
"""Of a copy: weights, gradient, its sum, two moments and the reference model, in fp32."""


def train_processes(parameters: int, cores: int, gpus: int, tp: int, memory: int) -> int:
    """A multiple of ``tp``, for a model of so many parameters and a machine of ``memory`` bytes.

    ``train_processes(135_000_000, cores=2, gpus=0, tp=1, memory=24 * 2**30)`` is 2.
    """
    if gpus or parameters < WORTH_A_PROCESS:
        return tp
    fitting = memory // 2 // (BYTES_PER_PARAMETER * parameters)  # the other half is that of engines and activations
    return tp * max(1, min(cores // tp, fitting, MOST_COPIES))


def with_train_procs(config: Config, model: Path) -> Config:
    """The config with TRAIN_PROCS settled for the model in the folder ``model``.

    A run that continues keeps what it began with, on whatever machine: the split of its rows is part of its training.

    Raises:
        ConfigError: that is more than this machine has processors for.
    """
    if config.train_procs:
        return config
    return config.replace(train_procs=_as_begun(config) or _for_this_machine(config, model))


def _as_begun(config: Config) -> int:
    """What the run in SAVE_PATH was begun with; 0 where there is none, or its TP was another one."""
    left = Path(config.save_path) / SETTINGS_FILE
    if not left.is_file():
        return 0
    processes, tp = read_yaml(left).get("TRAIN_PROCS"), config.trainer_tp
    if type(processes) is not int or processes <= 0 or processes % tp or processes // tp > config.step_trajectories:
        return 0
    if processes > max(tp * MOST_COPIES, len(os.sched_getaffinity(0))) and processes > _gpus():
        raise ConfigError(f"{left}: the run was begun with TRAIN_PROCS={processes}, more than this machine has "
                          f"processors; set TRAIN_PROCS={processes} to start as many, or another number")
    return processes


def _for_this_machine(config: Config, model: Path) -> int:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    parameters, tp = parameter_count(model_config(model)), config.trainer_tp
    found = train_processes(parameters, physical_cores(), _gpus(), tp, memory)
    return min(found, tp * config.step_trajectories)


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def physical_cores() -> int:
    """Cores that this process may use; the two threads of one count once."""
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    return len({_text(siblings.format(cpu)) or str(cpu) for cpu in os.sched_getaffinity(0)})


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
