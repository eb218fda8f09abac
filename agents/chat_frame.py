"""The model's chat template around a message, or around a whole conversation.

Models without a chat template get bare texts, those of a conversation each with a blank line behind it.

**Where a template has no place for a system message** (it refuses the role, or leaves the text out), the system
message stands at the head of the first user message, a blank line between them::

    system S, user A, assistant B, user C   ->   user S + blank line + A, assistant B, user C
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from ..system.errors import ConfigError, reason_of
from .records import Message, Role

_BLANK_LINE = "\n\n"


class TemplateRefused(ValueError):
    """The chat template cannot show these messages; says why."""


class ChatFrame:
    """Called with the text of one user message, it gives the text of the whole prompt."""

    def __init__(self, tokenizer: Any, options: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._options = options

    def __call__(self, content: str) -> str:
        """Raises ConfigError where the template refuses such a message."""
        if not self._tokenizer.chat_template:
            return content
        try:
            return self._render([Message(Role.USER, content)])
        except TemplateRefused as error:
            raise ConfigError(f"the model's chat template cannot show a single user message: {error}") from error

    def conversation(self, messages: Sequence[Message]) -> str:
        """The text of the prompt, up to where the model's reply begins. Raises TemplateRefused."""
        if not self._tokenizer.chat_template:
            return "".join(message.text + _BLANK_LINE for message in messages)
        return self._render(messages if self.has_system else _folded(messages))

    @cached_property
    def has_system(self) -> bool:
        """Whether the template shows a system message, in a place of its own or at one that it chooses."""
        system, user = "MEMSYSTEMX7Q", "MEMUSERX7Q"
        try:
            shown = self._render([Message(Role.SYSTEM, system), Message(Role.USER, user)])
        except TemplateRefused:
            return False
        return shown.count(system) == shown.count(user) == 1

    def _render(self, messages: Sequence[Message]) -> str:
        plain = [{"role": message.role.value, "content": message.text} for message in messages]
        return render(self._tokenizer, plain, add_generation_prompt=True, **self._options)


def render(tokenizer: Any, chat: Sequence[Mapping[str, str]], **options: Any) -> str:
    """What the tokenizer's template makes of a chat. Raises TemplateRefused."""
    try:
        return tokenizer.apply_chat_template(chat, tokenize=False, **options)
    except Exception as error:  # a template is a program: it ends in whatever its author raises
        raise TemplateRefused(reason_of(error)) from error


def _folded(messages: Sequence[Message]) -> list[Message]:
    """Without a system message: its text at the head of the first user message."""
    system = _BLANK_LINE.join(message.text for message in messages if message.role is Role.SYSTEM)
    rest = [message for message in messages if message.role is not Role.SYSTEM]
    first = next((number for number, message in enumerate(rest) if message.role is Role.USER), None)
    if not system or first is None:
        return rest
    rest[first] = Message(Role.USER, system + _BLANK_LINE + rest[first].text)
    return rest
