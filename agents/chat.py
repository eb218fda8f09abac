r"""``AGENT=chat``: a row's own messages through the model's chat template, and one reply. No wording of its own.

A row's prompt is a text, which is one user message, or a list of messages: perhaps a system message, solved examples
as pairs of user and assistant, and the question as the last user message. An assistant message behind the question is
what the reply goes on from (``Reading.prefix_ids``): its ids stand behind the template's and are no part of the reply.

Only what the template puts around texts goes through the template: it is rendered with a marker for each text, and cut
there. A row's texts are encoded by themselves, so none of them becomes a control token, and a question keeps its ids
whatever stands around it. All before the question is compiled once for all rows that share it.

ChatML, with ``[...]`` for one encoding; system S, the pair A and B, the question Q, an assistant message P::

    [<|im_start|>system\n] [S] [<|im_end|>\n<|im_start|>user\n] [A] [<|im_end|>\n<|im_start|>assistant\n] [B]
    [<|im_end|>\n<|im_start|>user\n] [Q] [<|im_end|>\n<|im_start|>assistant\n] [P]

Invariant: a prompt has at most MEM_MAX_QUESTION tokens more than the template puts around one user message, with P. So
the longest turn is that of a lone question of MEM_MAX_QUESTION tokens; a longer row fails, counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

from ..config import Config, ConfigError
from .chat_frame import TemplateRefused
from .interface import MemoryAgent, Reading
from .prompts import Frame, Prompts, opens_thinking
from .records import FailureKind, Generation, Message, Role, TurnFailed, TurnKind, TurnRequest
from .vocabulary import Vocabulary

_FRAMES = 256
"""Beginnings kept: with shots drawn for each row, those of a few rollouts."""


@dataclass(frozen=True, slots=True)
class _Around:
    """What stands before the question and behind it."""

    head: tuple[int, ...]
    tail: tuple[int, ...]
    thinking_open: bool


@dataclass(frozen=True, slots=True)
class State:
    prompt: tuple[int, ...]
    messages: int
    thinking_open: bool
    answer: str | None = None


class Chat(MemoryAgent):
    """``AGENT=chat``"""

    needs_document = False
    shows_messages = True

    def __init__(self, vocabulary: Vocabulary, frame: Frame, max_question: int, max_final: int) -> None:
        self._vocabulary = vocabulary
        self._frame = frame
        self._most, self._reply = max_question, max_final
        self._around = lru_cache(maxsize=_FRAMES)(self._compiled)
        try:
            alone = self._around(())
        except TurnFailed as error:
            raise ConfigError(str(error)) from error
        self._bare = len(alone.head) + len(alone.tail)

    @classmethod
    def from_config(cls, config: Config, vocabulary: Vocabulary, prompts: Prompts, frame: Frame) -> Self:
        return cls(vocabulary, frame, config.mem_max_question, config.mem_max_final)

    def start(self, reading: Reading) -> State:
        """Raises TurnFailed where the template cannot show the messages, or they are too many tokens."""
        around = self._around(reading.before)
        prompt = (*around.head, *reading.question_ids, *around.tail)
        tokens = len(prompt) + len(reading.prefix_ids) - self._bare
        if tokens > self._most:
            raise TurnFailed(
                FailureKind.LONG_QUESTION,
                f"{len(reading.before) + 1} messages of {tokens} tokens, MEM_MAX_QUESTION={self._most}",
            )
        behind = self._vocabulary.tokenizer.decode(reading.prefix_ids) if reading.prefix_ids else ""
        opened = opens_thinking(behind) or (around.thinking_open and "</think>" not in behind)
        return State(prompt, len(reading.before) + 1, opened)

    def requests(self, state: State) -> tuple[TurnRequest, ...]:
        if state.answer is not None:
            return ()
        return (TurnRequest(TurnKind.FINAL, list(state.prompt), self._reply, shared=len(state.prompt)),)

    def advance(self, state: State, generations: Sequence[Generation]) -> State:
        (reply,) = generations
        return replace(
            state, answer=self._vocabulary.answer_text(reply.token_ids, thinking_open=state.thinking_open)
        )

    def memory(self, state: State) -> tuple[int, ...]:
        return ()

    def answer(self, state: State) -> str:
        return state.answer or ""

    def counts(self, state: State) -> dict[str, float]:
        return {"messages": state.messages, "chunks": 0, "document_tokens": 0}

    def _compiled(self, before: tuple[Message, ...]) -> _Around:
        marked = [replace(message, text=_marker(number)) for number, message in enumerate(before)]
        question = Message(Role.USER, _marker(len(before)))
        try:
            rendered = self._frame.conversation([*marked, question])
        except TemplateRefused as error:
            raise _refused(before, str(error)) from error
        pieces = _MARKER.split(rendered)
        # Some templates put the system message beside the question; the order is theirs, but for the question's.
        order = [int(number) for number in pieces[1::2]]
        if sorted(order) != list(range(len(before) + 1)) or order[-1] != len(before):
            raise _refused(before, "it does not show each once, unchanged and the question last")
        *before_question, tail = pieces[0::2]
        head: list[int] = []
        for piece, number in zip(before_question, order, strict=True):
            head += self._vocabulary.encode_markup(piece) if piece else []
            head += self._vocabulary.encode_text(before[number].text) if number < len(before) else []
        return _Around(tuple(head), tuple(self._vocabulary.encode_markup(tail)), opens_thinking(tail))


# Letters and digits only survive any escaping that a chat template may do.
_MARKER = re.compile("MEMMESSAGE([0-9]{1,9})X7Q")


def _marker(number: int) -> str:
    return f"MEMMESSAGE{number}X7Q"


def _refused(before: Sequence[Message], reason: str) -> TurnFailed:
    roles = ", ".join([*(message.role for message in before), Role.USER])
    message = f"the model's chat template cannot show the messages {roles}: {reason}"
    return TurnFailed(FailureKind.BAD_MESSAGES, message)
