"""A server that evaluation asks, whatever it speaks: token ids in and out, or OpenAI's wording of the same.

============  ===============================  ========================================================================
``generate``  ``POST /inference/v1/generate``  ids in, ids out: vLLM (with ``--enable-scale-out``) or our own router
``completions``  ``POST /v1/completions``      ids in, text out, and the text is tokenised again
``chat``      ``POST /v1/chat/completions``    text in, text out: for any model, whose tokens are then OUR estimate
============  ===============================  ========================================================================

Agents hand over token ids. For ``chat`` they are decoded, and the local chat template's head and tail taken off, since
the server puts its own around the message; what stands before ``</think>`` stays thinking. Text that was tokenised
again is good enough to be carried as a memory or scored, and it has no log-probs: such replies never train.

Invariants:
- the key goes into the request header and nowhere else: no ``repr``, error or log line holds it;
- a request waits EVAL_SERVER_WAIT seconds in all for a server that does not answer or turns it away (``Patience``).
  After one that waited in vain while nobody was answered, ``server.gone`` is true and nobody waits again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ..agents.records import FailureKind, Generation, StopReason, TurnFailed
from ..agents.vocabulary import Vocabulary
from ..client.chat_settings import without_key
from ..client.engine_api import Endpoint, vllm_body

_THINK_END = "</think>"
POLL_S = 2.0
_MAY_PASS = (FailureKind.CONNECTION, FailureKind.SERVER_ERROR, FailureKind.RATE_LIMITED)
_STOPS = {"stop": StopReason.STOP, "length": StopReason.LENGTH}


class Api(StrEnum):
    GENERATE = "generate"
    COMPLETIONS = "completions"
    CHAT = "chat"


PATHS = {Api.GENERATE: "/inference/v1/generate", Api.COMPLETIONS: "/v1/completions", Api.CHAT: "/v1/chat/completions"}


@dataclass(frozen=True, slots=True)
class Frame:
    """The local chat template around a user message, which ``chat`` servers do themselves."""

    head: str
    tail: str

    def content(self, prompt: str) -> str:
        """The message in ``prompt``. What the reply goes on from stands behind the tail; it comes to the end of the
        message, where RULER's own client for chat servers puts it."""
        if not self.tail:
            return prompt.removeprefix(self.head)
        message, _, prefix = prompt.removeprefix(self.head).rpartition(self.tail)
        return message + prefix


def frame_of(render: Callable[[str], str]) -> Frame:
    """``render`` puts a message into the chat template."""
    marker = "MEMMESSAGEX7Q"
    head, _, tail = render(marker).partition(marker)
    return Frame(head, tail)


@dataclass(slots=True)
class Server:
    """What all requests of an evaluation know of its server."""

    gone: bool = False
    answered_at: float = 0.0
    """The last time at which it gave a reply (monotonic)."""


class Patience:
    """Of one request: it waits ``seconds`` in all; with a server that answers others it tries once more, but for 429,
    where its turn may come."""

    def __init__(self, server: Server, seconds: float) -> None:
        self._server, self._began = server, time.monotonic()
        self._deadline = self._began + seconds
        self._last_chance = False

    async def try_again(self, failure: TurnFailed) -> bool:
        if failure.kind not in _MAY_PASS or self._last_chance or self._server.gone:
            return False
        others_answered = self._server.answered_at > self._began
        wait = max(POLL_S, failure.wait)
        if time.monotonic() + wait > self._deadline:
            self._server.gone = not others_answered
            return False
        self._last_chance = others_answered and failure.kind is not FailureKind.RATE_LIMITED
        await asyncio.sleep(wait)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalEndpoint(Endpoint):
    """An endpoint with what its wording needs; ``vocabulary`` is that of the model whose ids the agents use."""

    vocabulary: Vocabulary = field(compare=False, repr=False)
    frame: Frame = field(compare=False, repr=False)
    api: Api = Api.GENERATE
    model: str = ""
    """The name under which the server knows the model; ``generate`` needs none."""
    budget_name: str = "max_tokens"
    key: str = field(default="", repr=False)
    server_wait: float = 0.0
    server: Server = field(default_factory=Server, compare=False, repr=False)

    @property
    def url(self) -> str:
        return self.base_url + PATHS[self.api]

    @property
    def finish_url(self) -> str:
        return f"{self.base_url}/finish_session" if self.api is Api.GENERATE else ""

    @property
    def streams(self) -> bool:
        return self.api is Api.GENERATE

    def patience(self) -> Patience:
        return Patience(self.server, self.server_wait)

    def build_request(
        self, prompt_ids: list[int], max_new_tokens: int, sampling: Mapping[str, Any], routing_key: str
    ) -> tuple[dict[str, Any], dict[str, str]]:
        if self.api is not Api.GENERATE:
            return self.body(prompt_ids, max_new_tokens, sampling), self.headers()
        # Not super(): a dataclass with slots is a new class, which the implicit form does not know.
        body, headers = Endpoint.build_request(self, prompt_ids, max_new_tokens, sampling, routing_key)
        return body, headers | self.headers()

    def parse_response(self, answer: Any) -> Generation:
        generation = Endpoint.parse_response(self, answer) if self.api is Api.GENERATE else self.read(answer)
        self.server.answered_at = time.monotonic()
        return generation

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def redacted(self, text: str) -> str:
        return without_key(text, self.key)

    def probe(self) -> dict[str, Any]:
        """The body of the smallest request: one token."""
        ids = self.vocabulary.encode_text("Hello") or [0]
        if self.api is Api.GENERATE:
            return vllm_body(ids, 1, {"temperature": 0.0})
        return self.body(ids, 1, {})

    def body(self, prompt_ids: list[int], max_new_tokens: int, sampling: Mapping[str, Any]) -> dict[str, Any]:
        """In OpenAI's wording, with none but standard fields: strict servers refuse any other."""
        names = ("temperature", "top_p", "seed")
        asked = {name: sampling[name] for name in names if sampling.get(name) is not None}
        body = {"model": self.model, self.budget_name: max_new_tokens, **asked}
        if self.api is Api.COMPLETIONS:
            return body | {"prompt": prompt_ids}
        text = self.vocabulary.tokenizer.decode(prompt_ids, clean_up_tokenization_spaces=False)
        return body | {"messages": [{"role": "user", "content": self.frame.content(text)}]}

    def read(self, answer: Mapping[str, Any]) -> Generation:
        """A reply in OpenAI's wording; an empty one is a reply too."""
        choice = answer["choices"][0]
        if choice["finish_reason"] not in _STOPS:
            raise ValueError(f"finish reason {choice['finish_reason']!r}; known are {', '.join(_STOPS)}")
        if self.api is Api.COMPLETIONS:
            text = choice["text"]
        else:
            text = _said(choice["message"].get("content"))
            if _THINK_END not in text and self.thinking_is_open:
                text = _THINK_END + text  # the server took the thinking out
        ids = reply_ids(self.vocabulary, text)
        usage = answer.get("usage") or {}
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        return Generation(ids, [0.0] * len(ids), _STOPS[choice["finish_reason"]], cached_tokens=cached)

    @property
    def thinking_is_open(self) -> bool:
        return self.frame.tail.rfind("<think>") > self.frame.tail.rfind(_THINK_END)


def _said(content: Any) -> str:
    """The text of a chat message: none, a text, or a list of parts with texts."""
    return "".join(part["text"] for part in content) if isinstance(content, list) else content or ""


def reply_ids(vocabulary: Vocabulary, text: str) -> list[int]:
    """Ids of a reply that came as text: the end of thinking is a control token, all else ordinary text."""
    thinking, end, rest = text.rpartition(_THINK_END)
    if not end:
        return vocabulary.encode_text(text)
    return [*vocabulary.encode_text(thinking), *vocabulary.encode_markup(_THINK_END), *vocabulary.encode_text(rest)]


def gone_line(endpoint: EvalEndpoint) -> str:
    """What ended a run whose ``server.gone`` is true."""
    return (f"{endpoint.base_url} did not answer, or turned requests away, for EVAL_SERVER_WAIT="
            f"{endpoint.server_wait:g} s; the same command continues")
