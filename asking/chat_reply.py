"""Steps of a reading in OpenAI's wording: chunks of a stream, or one completion.

A memory after each turn is ``reasoning_content``, as other servers give the thinking of a model: chat clients show it
folded, beside the answer. Chunks of a document of two sections::

    {"role": "assistant", "content": ""}
    {"reasoning_content": "[1/2] Ann has gold.\\n"}      {"reasoning_content": "[2/2] as before\\n"}
    {"content": "\\\\boxed{gold}"}                         finish_reason "stop", "mem_agent": {"sources": [...], ...}

The last chunk, and a completion, have ``mem_agent`` besides what OpenAI has: the answer as the model's task reads it,
the sections that it came from, each with its place in the document in characters, and what was read.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from .steps import Answered, Delta, Started, Step, TurnDone


@dataclass
class ChatReply:
    """Of one request; told of every step in order, it gives what to send."""

    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))
    started: Started | None = None
    answered: Answered | None = None
    reasoning: str = ""
    memory: str = ""
    memory_tokens: int = 0
    """Sampled in memory turns."""

    def deltas(self, step: Step) -> list[dict[str, str]]:
        """What ``step`` adds to the message."""
        match step:
            case Started():
                self.started = step
                return [{"role": "assistant", "content": ""}]
            case TurnDone(kind="memory"):
                return [{"reasoning_content": self._remembered(step)}]
            case Delta():
                return [{"content": step.text}]
            case Answered():
                self.answered = step
        return []

    def chunk(self, delta: dict[str, str]) -> dict[str, Any]:
        return self._of("chat.completion.chunk", {"index": 0, "delta": delta, "finish_reason": None})

    def last_chunk(self) -> dict[str, Any]:
        end = {"index": 0, "delta": {}, "finish_reason": self.finish_reason}
        return self._of("chat.completion.chunk", end) | {"mem_agent": self.about}

    def usage_chunk(self) -> dict[str, Any]:
        return self._of("chat.completion.chunk") | {"usage": self.usage}

    def completion(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.text, "reasoning_content": self.reasoning}
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason, "logprobs": None}
        return self._of("chat.completion", choice) | {"usage": self.usage, "mem_agent": self.about}

    @property
    def text(self) -> str:
        assert self.answered is not None, "the reading has not ended"
        return self.answered.text

    @property
    def finish_reason(self) -> str:
        assert self.answered is not None, "the reading has not ended"
        return "length" if self.answered.cut else "stop"

    @property
    def usage(self) -> dict[str, Any]:
        """Of all turns: what was computed, a stop string's own tokens among them."""
        done = self.answered
        assert done is not None, "the reading has not ended"
        return {
            "prompt_tokens": done.prompt_tokens,
            "completion_tokens": done.reply_tokens,
            "total_tokens": done.prompt_tokens + done.reply_tokens,
            "prompt_tokens_details": {"cached_tokens": done.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.memory_tokens},
        }

    @property
    def about(self) -> dict[str, Any]:
        assert self.started is not None and self.answered is not None, "the reading has not ended"
        sections = self.started.sections
        return {
            "answer": self.answered.answer,
            "memory": self.memory,
            "sources": [
                {"section": number, "start": sections[number].start, "end": sections[number].end}
                for number in self.answered.sources
            ],
            "sections": len(sections),
            "document_tokens": self.started.document_tokens,
        }

    def _remembered(self, turn: TurnDone) -> str:
        assert self.started is not None
        read = ",".join(str(number + 1) for number in turn.sections) or "merged"
        told = "as before" if turn.memory == self.memory else turn.memory or "nothing"
        line = f"[{read}/{len(self.started.sections)}] {told}\n"
        self.memory, self.memory_tokens = turn.memory, self.memory_tokens + turn.reply_tokens
        self.reasoning += line
        return line

    def _of(self, kind: str, *choices: dict[str, Any]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": list(choices)}
