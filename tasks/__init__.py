"""Tasks: what rows ask and what answers are worth (``interface.py``).

A new one is a file here and a line in ``TASKS``, or a class of the user's, named by TASK or by a row
(``system.plugins``).
"""

from __future__ import annotations

from functools import cache

from ..config import Config
from ..system.errors import ConfigError
from ..system.plugins import load_class, make, parse_settings
from .interface import Task, TaskRow
from .qa import QuestionAnswering
from .ruler import Ruler

__all__ = ["TASKS", "Task", "TaskRow", "load_task", "task_by_name"]

TASKS: dict[str, type[Task]] = {"qa": QuestionAnswering, "ruler": Ruler}


def task_by_name(name: str, config: Config) -> Task:
    """The task that a row names: one of the pack's, or one that TASK lists, by the name of its class too.

    Rows come from anywhere, so none of them gets code imported that the user has not named.

    Raises:
        ConfigError: it is neither.
    """
    listed = {own.rpartition(":")[2]: own for own in config.tasks} | {own: own for own in config.tasks}
    if name not in listed and name not in TASKS:
        allowed = ", ".join(dict.fromkeys([*TASKS, *config.tasks]))
        raise ConfigError(f"TASK={name!r}: allowed: {allowed}; name yours in TASK, after a comma")
    found = listed.get(name, name)
    return load_task(found, config.task_args if found == config.tasks[0] else "")


@cache
def load_task(name: str, args: str = "") -> Task:
    """The task ``name`` with the settings of TASK_ARGS. Raises ConfigError."""
    task = load_class("TASK", name, TASKS, Task)
    if not hasattr(task, "headline"):
        raise ConfigError(f"TASK={name!r}: {task.__name__} has no headline; name the metric that tables call accuracy")
    return make("TASK", name, task, parse_settings(task.Settings, args, "TASK_ARGS"))
