r"""Agents of one turn: the question alone, a row's own messages, or all of a document that fits beside the question.

    AGENT=single           [chat head, instructions, <problem>] question ids [</problem>, tail] -> answer
    AGENT=chat             the row's messages through the model's chat template, in no words of the pack
    EVAL_MODE=direct, rag  [chat head, instructions] document ids [</document> <problem>] question ids [...] -> answer

All run on the same loop, so answers, counts and failures mean the same everywhere.

``chat``: a row's prompt is a text, which is one user message, or a list of messages: perhaps a system message, solved
examples as pairs of user and assistant, and the question as the last user message. An assistant message behind the
question is what the reply goes on from (``Reading.prefix_ids``). The template is rendered with a marker for each text
and cut there; texts are encoded by themselves, so none of them becomes a control token. ChatML, with ``[...]`` for one
encoding; system S, the pair A and B, the question Q, an assistant message P::

    [<|im_start|>system\n] [S] [<|im_end|>\n<|im_start|>user\n] [A] [<|im_end|>\n<|im_start|>assistant\n] [B]
    [<|im_end|>\n<|im_start|>user\n] [Q] [<|im_end|>\n<|im_start|>assistant\n] [P]

Messages, question and P may add at most MEM_MAX_QUESTION tokens to what the template puts around one user message. So
the longest turn is that of a lone question of MEM_MAX_QUESTION tokens; a longer row fails, counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from ..config import Config, ConfigError
from .interface import MemoryAgent, Reading
from .prompts import PROBLEM, SECTION, Frame, Prompts, compile_chat, compile_template, opens_thinking
from .records import FailureKind, Generation, TurnFailed, TurnKind, TurnRequest
from .vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class State:
    request: TurnRequest
    thinking_open: bool
    messages: int = 1
    answer: str | None = None


class OnePrompt(MemoryAgent):
    """One FINAL turn in the wording of ``name``; a document comes as one chunk."""

    name: ClassVar[str]
    vocabulary: Vocabulary

    def __init__(self, config: Config, vocabulary: Vocabulary, prompts: Prompts, frame: Frame) -> None:
        self.vocabulary = vocabulary
        self._template = compile_template(prompts[self.name], frame, vocabulary)
        self._reply = config.mem_max_final

    @property
    def frame_tokens(self) -> int:
        """Tokens of the prompt around document and question."""
        return sum(map(len, self._template.pieces))

    def room(self, limit: int, reading: Reading) -> int:
        """Document tokens that fit beside the question, what the reply goes on from, and the reply."""
        reply = reading.reply_tokens or self._reply
        return limit - reply - self.frame_tokens - len(reading.question_ids) - len(reading.prefix_ids)

    def start(self, reading: Reading) -> State:
        values = {PROBLEM: reading.question_ids, SECTION: next(iter(reading.document.chunks), ())}
        return State(self._template.request(TurnKind.FINAL, values, self._reply, 0), self._template.thinking_open)

    def requests(self, state: State) -> tuple[TurnRequest, ...]:
        return () if state.answer is not None else (state.request,)

    def advance(self, state: State, generations: Sequence[Generation]) -> State:
        (reply,) = generations
        opened = state.thinking_open
        return replace(state, answer=self.vocabulary.answer_text(reply.token_ids, thinking_open=opened))


class Single(OnePrompt):
    """``AGENT=single``: the question alone, for tasks without a document."""

    name, needs_document = "single", False


class Direct(OnePrompt):
    """``EVAL_MODE=direct``: the document, without its centre where it does not fit."""

    name = "direct"


class Rag(OnePrompt):
    """``EVAL_MODE=rag``: what a retriever found in the document."""

    name = "rag"


BASELINES: dict[str, type[OnePrompt]] = {"direct": Direct, "rag": Rag}
"""The agent of each EVAL_MODE that asks once."""


# --- a row's own messages -----------------------------------------------------------------------------------------


class Chat(OnePrompt):
    """``AGENT=chat``"""

    needs_document, shows_messages = False, True

    def __init__(self, config: Config, vocabulary: Vocabulary, prompts: Prompts, frame: Frame) -> None:
        self.vocabulary = vocabulary
        self._most, self._reply = config.mem_max_question, config.mem_max_final
        # With shots drawn for each row, those of a few rollouts.
        self._around = lru_cache(maxsize=256)(lambda before: compile_chat(before, frame, vocabulary))
        self._template, _ = self._around(())

    def start(self, reading: Reading) -> State:
        """Raises TurnFailed where the template cannot show the messages, or they are too many tokens."""
        try:
            around, texts = self._around(reading.before)
        except ConfigError as error:
            raise TurnFailed(FailureKind.BAD_MESSAGES, str(error)) from error
        prompt, messages = around.fill(texts | {PROBLEM: reading.question_ids}), len(reading.before) + 1
        tokens = len(prompt) + len(reading.prefix_ids) - self.frame_tokens
        if tokens > self._most:
            told = f"{messages} messages of {tokens} tokens, MEM_MAX_QUESTION={self._most}"
            raise TurnFailed(FailureKind.LONG_QUESTION, told)
        behind = self.vocabulary.decode(reading.prefix_ids)
        opened = opens_thinking(behind) or (around.thinking_open and "</think>" not in behind)
        return State(TurnRequest(TurnKind.FINAL, prompt, self._reply, shared=len(prompt)), opened, messages)

    def counts(self, state: State) -> dict[str, float]:
        return {"messages": state.messages}

