"""What is checked once, before anything is started: the classes that AGENT, TASK, REWARD and rows name, and settings.

A setting that the chosen host does not read is refused, so that nobody thinks it had an effect. ``MASTER_ADDR``,
``RAY_ADDRESS`` and ``MEGATRON_ROOT`` are not in the table: torchrun, Ray and Megatron's own users export them, and
where a host reads none of them they mean nothing.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ..agents import check_agent
from ..config import Config, ConfigError
from ..data.training_file import DataSource, without_slice
from ..tasks import load_task
from .rewards import load_own_reward, load_reward
from .task_row import task_by_name


def check_plugins(config: Config, *, training: bool = True) -> None:
    """Load all three with their settings; an evaluation gives no rewards, nor does LOSS=sft, which loads none.

    Raises:
        ConfigError: one is not there, lacks a method, or cannot work under these settings.
    """
    check_agent(config)
    load_task(config.tasks[0], config.task_args)
    for name in config.tasks[1:]:
        load_task(name)
    if not config.supervised:
        (load_reward if training else load_own_reward)(config)


def check_own_tasks(source: DataSource, config: Config) -> None:
    """Load the tasks that rows of a training file name as their own.

    Raises:
        ConfigError: one is not there; all such rows would fail.
    """
    for name, line in source.own_tasks.items():
        try:
            task_by_name(name, config)
        except ConfigError as error:
            raise ConfigError(f"{source.path}, line {line}: metadata.task: {error}") from error


OF_HOSTS = ("host_root", "num_nodes", "num_gpus", "fully_async", "host_args")
"""Fields that slime and vime alone read."""
EMBEDDED = ("train_procs", "train_dtype", "lora_rank", "num_engines", "engine_args")
"""Fields that the embedded host alone reads; HOST_ARGS takes the flags of the others."""


def refuse_ignored(config: Config, host: str) -> None:
    """Raises ConfigError where a setting that ``host`` (local, slime or vime) does not read is not the default.

    ``refuse_ignored(Config(fully_async=True), "local")``: "FULLY_ASYNC=True does nothing with HOST=local ...".
    """
    default = Config()
    for name in OF_HOSTS if host == "local" else EMBEDDED:
        if (value := getattr(config, name)) != getattr(default, name):
            instead = "" if host == "local" else ", or give the host's own flags in HOST_ARGS"
            raise ConfigError(f"{name.upper()}={value} does nothing with HOST={host}; leave it out{instead}")


def check_tracker(config: Config) -> None:
    """Raises ConfigError where the library of TRACKER is not installed. Nothing is imported."""
    if config.tracker != "none" and importlib.util.find_spec(config.tracker) is None:
        raise ConfigError(f"TRACKER={config.tracker}: this Python has no module {config.tracker}; pip install "
                          f"{config.tracker}, or set TRACKER=none")


def check_evaluations(config: Config) -> None:
    """Raises ConfigError where what EVAL_INTERVAL asks for is not there, and where EVAL_DATA is never used or names a
    file twice. DATA_ROOT's questions are asked by the embedded host alone."""
    files, embedded = config.eval_files, config.host in ("auto", "local")
    if config.eval_interval and not files and not (embedded and config.data_root):
        more = ", or DATA_ROOT, a folder of eval_<length>.json" if embedded else ""
        raise ConfigError(f"EVAL_INTERVAL={config.eval_interval} needs EVAL_DATA, files of prepare_data.py{more}")
    if files and not config.eval_interval:
        raise ConfigError(f"EVAL_DATA={config.eval_data!r} is never used with EVAL_INTERVAL=0; set EVAL_INTERVAL to a "
                          "number of rollouts, or unset EVAL_DATA")
    if len({Path(file).stem for file in files}) < len(files):
        raise ConfigError(f"EVAL_DATA={config.eval_data!r}: two files have the same name; metrics go by it")
    for file in files:
        if not without_slice(file).is_file():
            raise ConfigError(f"EVAL_DATA: {file}: no such file; make it with prepare_data.py")
