"""Tasks: what rows ask and what answers are worth (``interface.py``).

A new one is a file here and a line in ``TASKS``, or a class of the user's, named by TASK or by a row
(``system.plugins``).
"""

from __future__ import annotations

from functools import cache

from ..system.errors import ConfigError
from ..system.plugins import load_class, make, parse_settings
from .countdown import Countdown
from .interface import Task, TaskRow
from .math import MathAnswer
from .qa import QuestionAnswering
from .rank_sessions import RankSessions
from .ruler import Ruler

__all__ = ["TASKS", "Task", "TaskRow", "load_task"]

TASKS: dict[str, type[Task]] = {
    "qa": QuestionAnswering, "ruler": Ruler, "gsm8k": MathAnswer, "math": MathAnswer, "countdown": Countdown,
    "rank_sessions": RankSessions,
}


@cache
def load_task(name: str, args: str = "", style: str = "answer") -> Task:
    """The task ``name`` with the settings of TASK_ARGS, and with the answers' style of MEM_REWARD if it has that.

    Raises ConfigError.
    """
    task = load_class("TASK", name, TASKS, Task)
    if not hasattr(task, "headline"):
        raise ConfigError(f"TASK={name!r}: {task.__name__} has no headline; name the metric that tables call accuracy")
    made = make("TASK", name, task, parse_settings(task.Settings, args, "TASK_ARGS"))
    if style in task.answer_styles:
        made.answer_style = style
    return made
