"""``POST /v1/completions``: prompts as texts, each read as a chat's only message; for harnesses that know no chats.

    {"prompt": "<document>\\n\\nQuestion: Who?\\nAnswer:", "max_tokens": 32}
    {"choices": [{"index": 0, "text": "\\\\boxed{Ann}", "finish_reason": "stop", "logprobs": null}], "usage": ...}

Several prompts are read side by side, and each takes a place among the readings. Tokens as prompts, log-probs and
streams are refused: an agent has none of the first two of a document that it forgets, and chats are there to stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .chat_reply import ChatReply
from .chat_request import ChatRequest, MessageReader
from .fields import BODY, checked
from .request_error import RequestError


async def prompts_of(body: Any, messages: MessageReader, most: int) -> list[ChatRequest]:
    """One for each prompt; of more than ``most`` none is looked at. Raises RequestError."""
    prompt = checked("", body, BODY).get("prompt")
    prompts = [prompt] if isinstance(prompt, str) else prompt
    if not isinstance(prompts, list) or not prompts or not all(isinstance(one, str) for one in prompts):
        raise RequestError(400, "prompt: expected a text, or a list of texts; tokens are not read", param="prompt")
    if len(prompts) > most:
        told = f"prompt: {len(prompts)} texts, of which {most} are read at once (--concurrency); send fewer"
        raise RequestError(400, told, param="prompt")
    if body.get("stream"):
        raise RequestError(400, "stream: /v1/chat/completions streams", param="stream")
    return await messages.chats(body, [[{"role": "user", "content": one}] for one in prompts])


@dataclass(frozen=True, slots=True)
class CompletionReply:
    replies: Sequence[ChatReply]

    def completion(self) -> dict[str, Any]:
        first = self.replies[0]
        usages = [reply.usage for reply in self.replies]
        names = ("prompt_tokens", "completion_tokens", "total_tokens")
        return {
            "id": first.id.replace("chatcmpl", "cmpl"), "object": "text_completion", "created": first.created,
            "model": first.model,
            "choices": [
                {"index": i, "text": reply.text, "finish_reason": reply.finish_reason, "logprobs": None}
                for i, reply in enumerate(self.replies)
            ],
            "usage": {name: sum(usage[name] for usage in usages) for name in names},
            "mem_agent": [reply.about for reply in self.replies],
        }
