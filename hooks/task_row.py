"""A host's sample as its task sees it."""

from __future__ import annotations

from typing import Any

from ..agents.records import FailureKind, TurnFailed
from ..config import Config, ConfigError
from ..tasks import TASKS, Task, TaskRow, load_task
from .sample import gold_answers

_DOCUMENT = frozenset({"context", "context_id"})
REPLY_PREFIX, REPLY_TOKENS = "reply_prefix", "reply_tokens"
"""In the metadata of a row that is evaluated: what its final reply goes on from, and how long that may be."""


def question_of(sample: Any) -> str:
    """The question: the prompt, or its last user message; empty where there is none."""
    prompt = sample.prompt
    if isinstance(prompt, list):
        users = [m["content"] for m in prompt if m.get("role") == "user"]
        prompt = users[-1] if users else ""
    return prompt.strip() if isinstance(prompt, str) else ""


def row_of(sample: Any) -> TaskRow:
    metadata = {name: value for name, value in (sample.metadata or {}).items() if name not in _DOCUMENT}
    return TaskRow(question_of(sample), tuple(gold_answers(sample)), metadata)


def reply_form(sample: Any) -> tuple[str, int]:
    """What the sample's final reply goes on from, and its most tokens; 0 where the agent's own budget holds."""
    metadata = sample.metadata or {}
    return metadata.get(REPLY_PREFIX, ""), metadata.get(REPLY_TOKENS, 0)


def task_name(config: Config, sample: Any) -> str:
    """The row's own task, else TASK's first."""
    return str((sample.metadata or {}).get("task") or config.tasks[0])


def task_of(config: Config, sample: Any) -> Task:
    """Raises ConfigError where TASK is not there, TurnFailed where the row's own is not."""
    own = (sample.metadata or {}).get("task")
    if not own:
        return load_task(config.tasks[0], config.task_args, config.mem_reward)
    try:
        return task_by_name(str(own), config)
    except ConfigError as error:
        raise TurnFailed(FailureKind.UNKNOWN_TASK, f"the row's own task: {error}") from error


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
    return load_task(found, config.task_args if found == config.tasks[0] else "", config.mem_reward)
