"""Tasks: what rows ask and what answers are worth (``interface.py``).

A new one is a file here and a line in ``TASKS``, or a class of the user's, named by TASK or by a row
(``system.plugins``).
"""

from __future__ import annotations

from functools import cache

from ..system.plugins import load_class, parse_settings
from .babilong import Babilong
from .interface import Task, TaskRow
from .math import Countdown, MathAnswer
from .qa import QuestionAnswering, Ruler
from .rank_sessions import RankSessions

__all__ = ["TASKS", "Task", "TaskRow", "load_task"]

TASKS: dict[str, type[Task]] = {
    "qa": QuestionAnswering, "ruler": Ruler, "gsm8k": MathAnswer, "math": MathAnswer, "countdown": Countdown,
    "rank_sessions": RankSessions, "babilong": Babilong,
}


@cache
def load_task(name: str, args: str = "") -> Task:
    """The task ``name`` with the settings of TASK_ARGS. Raises ConfigError."""
    task = load_class("TASK", name, TASKS, Task)
    return task(parse_settings(task.Settings, args, "TASK_ARGS"))
