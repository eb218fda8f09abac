"""A host's sample as its agent and its task see it.

A prompt is a text, which is the question, or a list of chat messages::

    [system]  [user, assistant] ...  user: the question  [assistant: what the reply goes on from]

What the final reply goes on from is the assistant message behind the question, or else ``metadata["reply_prefix"]``,
which evaluation sets for RULER's answer prefixes. Either way the agent gets it as the last ids of its final prompt,
and its task as ``metadata["reply_prefix"]`` of its row, since the reply that is scored does not hold it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..agents.records import FailureKind, Message, Role, TurnFailed
from ..config import Config, ConfigError
from ..tasks import TASKS, Task, TaskRow, load_task
from .sample import gold_answers

_DOCUMENT = frozenset({"context", "context_id"})
REPLY_PREFIX, REPLY_TOKENS = "reply_prefix", "reply_tokens"
"""In a row's metadata: what its final reply goes on from, and in evaluation how long that may be."""


def question_of(sample: Any) -> str:
    """The question: the prompt, or its last user message; empty where there is none."""
    prompt = _prompt(sample)
    if isinstance(prompt, list):
        prompt = next((_text(message) for message in reversed(prompt) if _role(message) == Role.USER), "")
    return prompt.strip()


def messages_before(sample: Any) -> tuple[Message, ...]:
    """The messages before the question, as they are.

    Raises:
        TurnFailed: the prompt is no conversation that ends with a question, perhaps with the beginning of a reply.
    """
    prompt = _prompt(sample)
    if not isinstance(prompt, list):
        return ()
    messages = [_message(number, message) for number, message in enumerate(prompt, start=1)]
    if messages[-1].role is Role.ASSISTANT:
        messages.pop()
    if not messages or messages[-1].role is not Role.USER or Role.SYSTEM in [message.role for message in messages[1:]]:
        raise TurnFailed(FailureKind.BAD_MESSAGES, "the last message must be the user's, only the first a system's")
    return tuple(messages[:-1])


def row_of(sample: Any) -> TaskRow:
    metadata = without_document(sample.metadata or {})
    if prefix := reply_form(sample)[0]:
        metadata[REPLY_PREFIX] = prefix
    return TaskRow(question_of(sample), tuple(gold_answers(sample)), metadata)


def without_document(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A row's metadata except its document."""
    return {name: value for name, value in metadata.items() if name not in _DOCUMENT}


def reply_form(sample: Any) -> tuple[str, int]:
    """What the sample's final reply goes on from, and its most tokens; 0 where the agent's own budget holds."""
    metadata, prompt = sample.metadata or {}, _prompt(sample)
    behind = _text(prompt[-1]) if isinstance(prompt, list) and prompt and _role(prompt[-1]) == Role.ASSISTANT else ""
    return behind or metadata.get(REPLY_PREFIX) or "", metadata.get(REPLY_TOKENS) or 0


def _prompt(sample: Any) -> Any:
    """The prompt, with messages as a list; pandas and some hosts give parquet lists as arrays."""
    prompt = sample.prompt
    return prompt.tolist() if hasattr(prompt, "tolist") else list(prompt) if isinstance(prompt, tuple) else prompt


def _message(number: int, message: Any) -> Message:
    role, text = _role(message), _text(message)
    if role not in tuple(Role) or not text:
        raise TurnFailed(FailureKind.BAD_MESSAGES, f"message {number} needs a text and a role: {', '.join(Role)}")
    return Message(Role(role), text)


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


def _text(message: Any) -> str:
    """Its content; of one in parts, ``[{"type": "text", "text": ...}, ...]``, the texts joined."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def task_name(config: Config, sample: Any) -> str:
    """The row's own task, else TASK's first."""
    return str((sample.metadata or {}).get("task") or config.tasks[0])


def task_of(config: Config, sample: Any) -> Task:
    """Raises ConfigError if TASK's own task is unknown, TurnFailed if the row's is."""
    own = (sample.metadata or {}).get("task")
    if not own:
        return load_task(config.tasks[0], config.task_args)
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
        allowed = ", ".join([*TASKS, *config.tasks])
        raise ConfigError(f"TASK={name!r}: allowed: {allowed}; name yours in TASK, after a comma")
    found = listed.get(name, name)
    return load_task(found, config.task_args if found == config.tasks[0] else "")
