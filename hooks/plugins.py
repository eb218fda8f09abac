"""The classes that AGENT, TASK and REWARD name, asked for once, before anything is started."""

from __future__ import annotations

from ..agents import check_agent
from ..config import Config
from ..tasks import load_task
from .batch_reward import load_reward


def check_plugins(config: Config) -> None:
    """Load all three with their settings.

    Raises:
        ConfigError: one is not there, lacks a method, or cannot work under these settings.
    """
    check_agent(config)
    load_task(config.tasks[0], config.task_args)
    for more in config.tasks[1:]:
        load_task(more)
    load_reward(config)
