"""Steps of a reading in OpenAI's wording: chunks of a stream, or one completion.

A memory after each turn is ``reasoning_content``, as other servers give the thinking of a model: chat clients show it
folded, beside the answer. Deltas of a document of two sections::

    {"role": "assistant", "content": ""}
    {"reasoning_content": "[1/2] Ann has gold.\\n"}      {"reasoning_content": "[2/2] as before\\n"}
    {"content": "\\\\boxed{gold}"}                         finish_reason "stop", "mem_agent": {"sources": [...], ...}

The last chunk, and a completion, have ``mem_agent`` besides what OpenAI has: the answer as the model's task reads it,
the sections that it came from, each with its place in the document in characters, and what was read.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk

from .steps import Answered, Delta, Started, Step, TurnDone


class ChatReply:
    """Of one request; ``add`` takes every step in order but ``Failed``."""

    def __init__(self, model: str) -> None:
        self.head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
        self.started = Started((), 0)
        self.answered = Answered("", "", (), False, 0, 0, 0)
        self.reasoning = self.memory = ""
        self.memory_tokens = 0
        """Sampled in memory turns."""

    def add(self, step: Step) -> dict[str, str]:
        """What ``step`` adds to the message."""
        match step:
            case Started():
                self.started = step
                return {"role": "assistant", "content": ""}
            case TurnDone(kind="memory"):
                return {"reasoning_content": self._remembered(step)}
            case Delta():
                return {"content": step.text}
            case Answered():
                self.answered = step
        return {}

    def _remembered(self, turn: TurnDone) -> str:
        read = ",".join(str(number + 1) for number in turn.sections) or "merged"
        memory = "as before" if turn.memory == self.memory else turn.memory or "nothing"
        line = f"[{read}/{len(self.started.sections)}] {memory}\n"
        self.memory, self.memory_tokens = turn.memory, self.memory_tokens + turn.reply_tokens
        self.reasoning += line
        return line

    def chunk(self, delta: dict[str, str], finish_reason: str | None = None, **more: Any) -> str:
        """JSON."""
        choices = [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
        chunk = self.head | {"object": "chat.completion.chunk", "choices": choices} | more
        return ChatCompletionChunk.model_validate(chunk).model_dump_json(exclude_unset=True)

    def last_chunks(self, include_usage: bool) -> list[str]:
        end = self.chunk({}, self.finish_reason, mem_agent=self.about)
        return [end, self.chunk({}, choices=[], usage=self.usage)] if include_usage else [end]

    def completion(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.answered.text, "reasoning_content": self.reasoning}
        choices = [{"index": 0, "message": message, "finish_reason": self.finish_reason, "logprobs": None}]
        whole = {"object": "chat.completion", "choices": choices, "usage": self.usage, "mem_agent": self.about}
        return ChatCompletion.model_validate(self.head | whole).model_dump(exclude_unset=True)

    @property
    def finish_reason(self) -> str:
        return "length" if self.answered.cut else "stop"

    @property
    def usage(self) -> dict[str, Any]:
        """Of all turns: what was computed, a stop string's own tokens among them."""
        done = self.answered
        return {
            "prompt_tokens": done.prompt_tokens,
            "completion_tokens": done.reply_tokens,
            "total_tokens": done.prompt_tokens + done.reply_tokens,
            "prompt_tokens_details": {"cached_tokens": done.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.memory_tokens},
        }

    @property
    def about(self) -> dict[str, Any]:
        sections = self.started.sections
        found = [{"section": number, "start": sections[number].start, "end": sections[number].end}
                 for number in self.answered.sources]
        return {"answer": self.answered.answer, "memory": self.memory, "sources": found, "sections": len(sections),
                "document_tokens": self.started.document_tokens}
