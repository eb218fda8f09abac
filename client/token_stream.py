"""A vLLM answer that comes in server-sent events, put together into the object that comes where nothing is streamed.

    data: {"choices": [{"token_ids": [8], "logprobs": {"content": [{"logprob": -1.0}]}, "finish_reason": null}]}
    data: {"choices": [{"token_ids": [9], "logprobs": {"content": [{"logprob": -2.0}]}, "finish_reason": "stop"}]}
    data: {"choices": [], "usage": {"prompt_tokens": 3}}
    data: [DONE]

Invariant: an answer is whole or there is none; a stream that ends before ``[DONE]`` raises ValueError, unless whoever
reads it has ended it.
"""

from __future__ import annotations

from typing import Any

import orjson

STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
"""What a request's body has besides."""


class TokenStream:
    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self._log_probs: list[Any] = []
        self._choice: dict[str, Any] = {}
        self._usage: Any = None
        self._done = False

    def add(self, line: bytes) -> bool:
        """Take one line; whether it brought tokens. Raises ValueError for an error, or what is no event."""
        if not line.startswith(b"data:"):
            return False
        data = line[5:].strip()
        if data == b"[DONE]":
            self._done = True
            return False
        before = len(self.token_ids)
        self._take(orjson.loads(data))
        return len(self.token_ids) > before

    def end(self) -> None:
        """Nothing more is wanted: what has come is the answer."""
        self._choice["finish_reason"], self._done = "stop", True

    def answer(self) -> dict[str, Any]:
        if not self._done:
            raise ValueError("the stream ended before its answer did")
        choice = self._choice | {"token_ids": self.token_ids, "logprobs": {"content": self._log_probs}}
        return {"choices": [choice], "usage": self._usage}

    def _take(self, event: dict[str, Any]) -> None:
        if event.get("error"):
            raise ValueError(f"the stream ended with {str(event['error'])[:300]}")
        self._usage = event.get("usage") or self._usage
        for choice in event.get("choices") or ():
            self.token_ids += choice.get("token_ids") or []
            self._log_probs += (choice.get("logprobs") or {}).get("content") or []
            self._choice |= {name: value for name, value in choice.items() if value is not None}
