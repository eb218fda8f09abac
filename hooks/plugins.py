"""The classes that AGENT, TASK, REWARD and rows name, asked for once, before anything is started."""

from __future__ import annotations

from ..agents import check_agent
from ..config import Config, ConfigError
from ..data.training_file import DataSource
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
            raise ConfigError(
                f"{source.path}, line {line}: metadata.task: {error}; rows of TASK go without it"
            ) from error
