"""A vLLM answer in server-sent events, put together into the object that comes where nothing is streamed.

    data: {"choices": [{"token_ids": [8], "logprobs": {"content": [{"logprob": -1.0}]}, "finish_reason": null}]}
    data: {"choices": [{"token_ids": [9], "logprobs": {"content": [{"logprob": -2.0}]}, "finish_reason": "stop"}]}
    data: {"choices": [], "usage": {"prompt_tokens": 3}}
    data: [DONE]

Invariant: an answer is whole or there is none; a stream that ends before ``[DONE]`` raises ValueError, unless
``enough`` has ended it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson


class TokenStream:
    """``How.stream`` of one request: ``enough`` gets all ids so far and returns whether the reply may end there."""

    def __init__(self, enough: Callable[[list[int]], bool]) -> None:
        self._enough = enough
        self.token_ids: list[int] = []

    @property
    def begun(self) -> bool:
        """Whether some of it was shown: sampled again, it would be another reply."""
        return bool(self.token_ids)

    async def read(self, response: Any) -> dict[str, Any]:
        """The answer, from an aiohttp response."""
        log_probs: list[Any] = []
        choice: dict[str, Any] = {}
        usage, done = None, False
        async for line in response.content:
            data = line.removeprefix(b"data:").strip()
            if done := data == b"[DONE]":
                break
            if not line.startswith(b"data:"):
                continue
            event = orjson.loads(data)
            if event.get("error"):
                raise ValueError(f"the stream ended with {str(event['error'])[:300]}")
            usage = event.get("usage") or usage
            before = len(self.token_ids)
            for part in event.get("choices") or ():
                self.token_ids += part.get("token_ids") or []
                log_probs += (part.get("logprobs") or {}).get("content") or []
                choice |= {name: value for name, value in part.items() if value is not None}
            if len(self.token_ids) > before and self._enough(self.token_ids):
                choice["finish_reason"], done = "stop", True  # leaving the response unread ends it at the engine
                break
        if not done:
            raise ValueError("the stream ended before its reply did")
        whole = choice | {"token_ids": self.token_ids, "logprobs": {"content": log_probs}}
        return {"choices": [whole], "usage": usage}
