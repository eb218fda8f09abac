"""A server that evaluation asks: token ids in and out, or OpenAI's APIs, which answer in text.

===============  ==============================  ====================================================================
``generate``     ``POST /inference/v1/generate``  ids in, ids out: vLLM (with ``--enable-scale-out``) or our own router
``completions``  ``POST /v1/completions``         ids in, text out
``chat``         ``POST /v1/chat/completions``    text in, text out: for any model
===============  ==============================  ====================================================================

Agents hand over token ids. For ``chat`` they are decoded and the local chat template is taken off, since the server
puts its own around the message. Text that comes back is tokenised again: good enough to be carried as a memory or
scored, but it has no log-probs, so it never trains.

Thinking is the same on every API: ``<think>`` and ``</think>`` become the control tokens that they are, so a reply
that never closes its thinking leaves neither memory nor answer::

    "<think>\\nred? blue?</think>red"    answer "red"
    "<think>\\nthe fruit may be apple"    answer ""

Invariant: the key goes into the request header and nowhere else: no ``repr``, error or log line holds it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ..agents.prompts import opens_thinking
from ..agents.records import Generation, StopReason
from ..agents.vocabulary import Vocabulary
from ..rollout_client import Endpoint
from ..system.server_url import without_key
from .questions import EvalError

_THINK_OPEN, _THINK_END = "<think>", "</think>"
_STOPS = {"stop": StopReason.STOP, "length": StopReason.LENGTH}
_MARKER = "MEMMESSAGEX7Q"


class Api(StrEnum):
    GENERATE = "generate"
    COMPLETIONS = "completions"
    CHAT = "chat"


PATHS = {Api.GENERATE: "/inference/v1/generate", Api.COMPLETIONS: "/v1/completions", Api.CHAT: "/v1/chat/completions"}


@dataclass(frozen=True, slots=True)
class Frame:
    """The local chat template around a user message, as decoding gives it back: a SentencePiece tokenizer decodes the
    ids of ``<s>[INST] Hi [/INST]`` to ``<s> [INST] Hi [/INST]``."""

    head: str
    tail: str

    def content(self, prompt: str) -> str:
        """The message in a decoded prompt. What the reply goes on from stands behind the tail; it comes to the end of
        the message, where RULER's own client for chat servers puts it."""
        head, tail = self.head.rstrip(), self.tail.lstrip()
        if not prompt.startswith(head) or tail not in prompt:
            raise EvalError("EVAL_API=chat: the model's chat template cannot be taken off its prompts; set "
                            "EVAL_API=completions, or generate")
        prompt = prompt.removeprefix(self.head) if prompt.startswith(self.head) else prompt.removeprefix(head)
        if not tail:
            return prompt
        message, _, prefix = prompt.rpartition(self.tail if self.tail in prompt else tail)
        return message + prefix

    @property
    def thinking_is_open(self) -> bool:
        return opens_thinking(self.tail)


def frame_of(vocabulary: Vocabulary, thinking: bool) -> Frame:
    """Of a model's chat template under MEM_THINKING; without a template there is nothing around a message."""
    tokenizer = vocabulary.tokenizer
    if not tokenizer.chat_template:
        return Frame("", "")
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": _MARKER}], tokenize=False, add_generation_prompt=True, enable_thinking=thinking
    )
    head, _, tail = decoded(vocabulary, vocabulary.encode_markup(text)).partition(_MARKER)
    return Frame(head, tail)


def decoded(vocabulary: Vocabulary, ids: list[int]) -> str:
    return vocabulary.tokenizer.decode(ids, clean_up_tokenization_spaces=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalEndpoint(Endpoint):
    """An endpoint with what its API needs; ``vocabulary`` is that of the model whose ids the agents use."""

    vocabulary: Vocabulary = field(compare=False, repr=False)
    frame: Frame = field(compare=False, repr=False)
    api: Api = Api.GENERATE
    model: str = ""
    """The name under which the server knows the model; ``generate`` needs none."""
    budget_name: str = "max_tokens"
    thinking: bool | None = None
    """MEM_THINKING, sent to chat servers whose template has ``enable_thinking``; None: not sent."""
    key: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        return self.base_url + PATHS[self.api]

    @property
    def is_vllm(self) -> bool:
        return self.api is Api.GENERATE

    def build_request(
        self, prompt_ids: list[int], max_new_tokens: int, sampling: Mapping[str, Any], routing_key: str
    ) -> tuple[dict[str, Any], dict[str, str]]:
        if self.api is not Api.GENERATE:
            return self.body(prompt_ids, max_new_tokens, sampling), self.headers()
        # Not super(): a dataclass with slots is a new class, which the implicit form does not know.
        body, headers = Endpoint.build_request(self, prompt_ids, max_new_tokens, sampling, routing_key)
        return body, headers | self.headers()

    def parse_response(self, answer: Any) -> Generation:
        return Endpoint.parse_response(self, answer) if self.api is Api.GENERATE else self.read(answer)

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def redacted(self, text: str) -> str:
        return without_key(text, self.key)

    def probe(self) -> dict[str, Any]:
        """The body of the smallest request: one token."""
        ids = self.vocabulary.encode_text("Hello") or [0]
        if self.api is Api.GENERATE:
            return Endpoint.build_request(self, ids, 1, {"temperature": 0.0}, "")[0]
        return self._body("Hello" if self.api is Api.CHAT else ids, 1, {})

    def body(self, prompt_ids: list[int], max_new_tokens: int, sampling: Mapping[str, Any]) -> dict[str, Any]:
        """The same request in OpenAI's wording."""
        if self.api is Api.COMPLETIONS:
            return self._body(prompt_ids, max_new_tokens, sampling)
        return self._body(self.frame.content(decoded(self.vocabulary, prompt_ids)), max_new_tokens, sampling)

    def _body(self, prompt: str | list[int], max_new_tokens: int, sampling: Mapping[str, Any]) -> dict[str, Any]:
        """Only standard fields besides ``thinking``: strict servers refuse any other."""
        names = ("temperature", "top_p", "seed")
        asked = {name: sampling[name] for name in names if sampling.get(name) is not None}
        body = {"model": self.model, self.budget_name: max_new_tokens, **asked}
        if self.api is Api.COMPLETIONS:
            return body | {"prompt": prompt}
        switch = {} if self.thinking is None else {"chat_template_kwargs": {"enable_thinking": self.thinking}}
        return body | {"messages": [{"role": "user", "content": prompt}]} | switch

    def read(self, answer: Mapping[str, Any]) -> Generation:
        """A reply in OpenAI's wording; an empty one is a reply too."""
        choice = answer["choices"][0]
        if choice["finish_reason"] not in _STOPS:
            raise ValueError(f"finish reason {choice['finish_reason']!r}; known are {', '.join(_STOPS)}")
        stop = _STOPS[choice["finish_reason"]]
        if self.api is Api.COMPLETIONS:
            text = choice["text"]
        else:
            message = choice["message"]
            text = _content(message.get("content"))
            # Servers with a reasoning parser take the thinking out; a reply that ended by itself had closed it.
            taken_out = message.get("reasoning_content") or message.get("reasoning") or stop is StopReason.STOP
            if self.frame.thinking_is_open and taken_out and _THINK_END not in text:
                text = _THINK_END + text
        ids = reply_ids(self.vocabulary, text)
        usage = answer.get("usage") or {}
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        return Generation(ids, [0.0] * len(ids), stop, cached_tokens=cached)


def _content(content: Any) -> str:
    """The text of a chat message: none, a text, or a list of parts with texts."""
    return "".join(part["text"] for part in content) if isinstance(content, list) else content or ""


def reply_ids(vocabulary: Vocabulary, text: str) -> list[int]:
    """Ids of a reply that came as text: thinking's two tags are control tokens, all else is ordinary text."""
    ids: list[int] = []
    for part in re.split(f"({_THINK_OPEN}|{_THINK_END})", text):
        tag = part in (_THINK_OPEN, _THINK_END)
        ids += vocabulary.encode_markup(part) if tag else vocabulary.encode_text(part)
    return ids
