"""A server that evaluation asks: token ids in and out, or OpenAI's APIs, which answer in text.

===============  ==============================  ====================================================================
``generate``     ``POST /inference/v1/generate``  ids in, ids out: vLLM (with ``--enable-scale-out``) or our own router
``completions``  ``POST /v1/completions``         ids in, text out
``chat``         ``POST /v1/chat/completions``    text in, text out: for any model
===============  ==============================  ====================================================================

``BASE_URL`` is ``http://HOST:PORT`` or ``https://HOST/v1``, as OpenAI's clients write it. ``EVAL_API=auto`` asks for
one token on each API and takes the first that gives one, the exact ones first::

    generate -> HTTP 404, completions -> HTTP 200, but no reply, chat -> a reply      so: chat

Agents hand over token ids. For ``chat`` they are decoded, and the tokenizer's beginning of text and the local chat
template are taken off, since the server puts its own around the message. Text that comes back is tokenised again: good
enough to be carried as a memory or scored, but it has no log-probs, so it never trains.

Thinking is the same on every API: ``<think>`` and ``</think>`` become the control tokens that they are, so a reply
that never closes its thinking leaves neither memory nor answer::

    "<think>\\nred? blue?</think>red"    answer "red"
    "<think>\\nthe fruit may be apple"    answer ""

What a request leaves out, many servers fill in from the model's generation_config.json (a repetition penalty, top_k),
so it is said neutrally where the server takes it. Where it does not, a warning names the values of that file.

Invariant: the key, ``OPENAI_API_KEY``, goes into the request header and nowhere else: no ``repr``, error or log line
holds it. It is only sent to ``BASE_URL``, never to an own router.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from ..agents.prompts import chat_frame, opens_thinking
from ..agents.records import FailureKind, Generation, StopReason, TurnFailed
from ..agents.vocabulary import Vocabulary
from ..checkpoints.hf_model import load_vocabulary
from ..config import Config
from ..rollout_client import NEUTRAL, Dialect, Endpoint, How, client_for, close_clients
from ..system.server_url import checked_url, key_from, without_key
from .results import EvalError

logger = logging.getLogger("mem_agent")

KEY = "OPENAI_API_KEY"
_THINKING = re.compile("(<think>|</think>)")
_MARKER = "MEMMESSAGEX7Q"
_BUDGETS = ("max_tokens", "max_completion_tokens")
"""OpenAI's two names of a reply's limit; some chat servers know one of them only."""


class Api(StrEnum):
    GENERATE = "generate"
    COMPLETIONS = "completions"
    CHAT = "chat"


_PATHS = {Api.GENERATE: "/inference/v1/generate", Api.COMPLETIONS: "/v1/completions", Api.CHAT: "/v1/chat/completions"}


# --- finding the API ------------------------------------------------------------------------------------------------


async def connect(url: str, model: Path, config: Config, served_model: str = "") -> EvalEndpoint:
    """The router of own engines at ``url``; where that is empty the server at ``BASE_URL``, which has answered.

    Args:
        served_model: the model's name there; empty: the only one.

    Raises:
        EvalError: nothing answers there, or nothing that can be used; the line says what was tried.
    """
    vocabulary = load_vocabulary(model, config.trust_remote_code)
    if url:
        return endpoint_at(url, vocabulary, config)
    url, key = checked_url("BASE_URL", config.base_url, KEY), key_from(os.environ, (KEY,))
    endpoint = endpoint_at(url, vocabulary, config, key=key)
    endpoint, tried = await _with_model(endpoint, config, served_model), dict[str, str]()
    hello = chat_frame(vocabulary.tokenizer, config.mem_thinking, {})("Hello")
    prompt = vocabulary.beginning(vocabulary.encode_markup(hello))
    # Of a chat server it is also asked whether it takes MEM_THINKING, where the model's template knows it.
    knows = "enable_thinking" in str(vocabulary.tokenizer.chat_template)
    completions = [replace(endpoint, api=Api.COMPLETIONS, neutral=neutral) for neutral in (True, False)]
    chat = [replace(endpoint, api=Api.CHAT, thinking=thinking, budget_name=budget, neutral=neutral)
            for thinking in ([config.mem_thinking, None] if knows else [None]) for neutral in (True, False)
            for budget in _BUDGETS]
    for asked in (endpoint, *completions, *chat):
        if config.eval_api not in ("auto", asked.api):
            continue
        try:
            await client_for(asked, 1).generate(prompt, 1, "", How(sampling={"temperature": 0.0}))
            longest = max(config.mem_max_memory, config.mem_max_final)
            if asked is not endpoint and (values := filled_in(model, longest, penalties=not asked.neutral)):
                logger.warning("%s: its model's generation_config.json has %s, which it may fill in and a request "
                               "cannot undo: results will differ from other servers'", asked.url, values)
            return asked
        except TurnFailed as error:
            tried[asked.api] = f"{asked.api} -> {str(error).removeprefix(f'{asked.url}: ')}"
        finally:
            await close_clients(asked)
    what = "; ".join(tried.values())
    raise EvalError(f"{endpoint.base_url}: no usable API ({what}); see EVAL_API, --served-model and {KEY}")


def endpoint_at(url: str, vocabulary: Vocabulary, config: Config, **others: Any) -> EvalEndpoint:
    """``others``: fields of EvalEndpoint."""
    frame = frame_of(vocabulary, config.mem_thinking)
    return EvalEndpoint(dialect=Dialect.VLLM, base_url=url, max_tokens=config.engine_max_len, vocabulary=vocabulary,
                        frame=frame, **others)


async def _with_model(endpoint: EvalEndpoint, config: Config, name: str) -> EvalEndpoint:
    """The endpoint with the served model's name, and with its length where ENGINE_MAX_LEN says none."""
    from ..hooks.chat_model import ChatClient, ChatFailed, ChatSettings  # whose library takes a second

    client, served = ChatClient(ChatSettings(url=endpoint.base_url, model=name, key=endpoint.key, timeout_s=30.0)), {}
    try:
        served = await client.served()
    except ChatFailed as error:  # a server may have no such list
        refused = error.status == 401 or (error.status == 403 and not name)
        if refused or error.kind in (FailureKind.CONNECTION, FailureKind.TIMEOUT):
            raise EvalError(f"{error} ({KEY})" if error.status else str(error)) from None
    finally:
        await client.close()
    if len(served) > 1 and not name and config.eval_api != Api.GENERATE:
        some = ", ".join(sorted(served)[:5])
        raise EvalError(f"{endpoint.base_url} serves {len(served)} models ({some}); name one with --served-model")
    name = name or (next(iter(served)) if len(served) == 1 else "")
    return replace(endpoint, model=name, max_tokens=endpoint.max_tokens or served.get(name, 0))


def filled_in(model: Path, longest: int, *, penalties: bool) -> str:
    """The values of a model's generation_config.json that a server fills in, as ``top_k 20, min_p 0.1``: a limit that
    is below the ``longest`` reply, which vLLM takes for the most that a request may ask for, and ``penalties``."""
    file = model / "generation_config.json"
    values = orjson.loads(file.read_bytes()) if file.is_file() else {}
    found = [f"max_new_tokens {most}"] if (most := values.get("max_new_tokens")) and most < longest else []
    return ", ".join([*found, *(f"{name} {values[name]}" for name, neutral in NEUTRAL.items() if penalties
                                and values.get(name) not in (None, neutral, 0))])


# --- the local chat template ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands around a user message in a prompt, as decoding gives it back: the tokenizer's own beginning of text
    and the local chat template. A SentencePiece tokenizer decodes ``<s>[INST] Hi [/INST]`` to ``<s> [INST] Hi
    [/INST]``."""

    head: str
    tail: str

    def content(self, prompt: str) -> str:
        """The message in a decoded prompt. What the reply goes on from stands behind the tail; it comes to the end of
        the message, where RULER's own client for chat servers puts it."""
        head = self.head if prompt.startswith(self.head) else self.head.rstrip()
        tail = self.tail if self.tail in prompt else self.tail.lstrip()
        if not prompt.startswith(head) or tail not in prompt:
            raise EvalError("EVAL_API=chat: the model's chat template cannot be taken off its prompts; set "
                            "EVAL_API=completions, or generate")
        prompt = prompt.removeprefix(head)
        if not tail:
            return prompt
        message, _, prefix = prompt.rpartition(tail)
        return message + prefix

    @property
    def thinking_is_open(self) -> bool:
        return opens_thinking(self.tail)


def frame_of(vocabulary: Vocabulary, thinking: bool) -> Frame:
    """Of a model's chat template under MEM_THINKING, if it has one."""
    if not vocabulary.tokenizer.chat_template:
        return Frame(decoded(vocabulary, vocabulary.beginning([])), "")
    marked = vocabulary.encode_markup(chat_frame(vocabulary.tokenizer, thinking, {})(_MARKER))
    head, _, tail = decoded(vocabulary, vocabulary.beginning(marked)).partition(_MARKER)
    return Frame(head, tail)


def decoded(vocabulary: Vocabulary, ids: list[int]) -> str:
    return vocabulary.tokenizer.decode(ids, clean_up_tokenization_spaces=False)


# --- requests and replies -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalEndpoint(Endpoint):
    """An endpoint with what its API needs; ``vocabulary`` is that of the model whose ids the agents use."""

    vocabulary: Vocabulary = field(compare=False, repr=False)
    frame: Frame = field(compare=False, repr=False)
    api: Api = Api.GENERATE
    model: str = ""
    """The name under which the server knows the model; ``generate`` needs none."""
    budget_name: str = _BUDGETS[0]
    neutral: bool = True
    """Whether values are sent that the server may fill in otherwise (``rollout_client.NEUTRAL``)."""
    thinking: bool | None = None
    """MEM_THINKING, sent to chat servers whose template has ``enable_thinking``; None: not sent."""
    key: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        return self.base_url + _PATHS[self.api]

    @property
    def is_vllm(self) -> bool:
        return self.api is Api.GENERATE

    def build_request(
        self, prompt_ids: list[int], max_new_tokens: int, sampling: Mapping[str, Any], routing_key: str
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """OpenAI's wording. Besides ``thinking`` and ``neutral`` standard fields only: strict servers refuse more."""
        key = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        if self.api is Api.GENERATE:
            # Not super(): a dataclass with slots is a new class, which the implicit form does not know.
            body, headers = Endpoint.build_request(self, prompt_ids, max_new_tokens, sampling, routing_key)
            return body, headers | key
        names = ("temperature", "top_p", "seed", *(NEUTRAL if self.neutral else ()))
        asked = {name: sampling[name] for name in names if sampling.get(name) is not None}
        asked = (NEUTRAL if self.neutral else {}) | asked
        body = {"model": self.model, self.budget_name: max_new_tokens, **asked}
        if self.api is Api.COMPLETIONS:
            return body | {"prompt": prompt_ids}, key
        content = self.frame.content(decoded(self.vocabulary, prompt_ids))
        switch = {} if self.thinking is None else {"chat_template_kwargs": {"enable_thinking": self.thinking}}
        return body | {"messages": [{"role": "user", "content": content}]} | switch, key

    def parse_response(self, answer: Any) -> Generation:
        """An empty reply is a reply too."""
        if self.api is Api.GENERATE:
            return Endpoint.parse_response(self, answer)
        choice = answer["choices"][0]
        stop = StopReason(choice["finish_reason"])
        text = choice["text"] if self.api is Api.COMPLETIONS else self._said(choice["message"], stop)
        # Thinking's two tags are control tokens, all else is ordinary text.
        ids: list[int] = []
        for part in _THINKING.split(text):
            tag = _THINKING.match(part)
            ids += self.vocabulary.encode_markup(part) if tag else self.vocabulary.encode_text(part)
        cached = ((answer.get("usage") or {}).get("prompt_tokens_details") or {}).get("cached_tokens")
        return Generation(ids, [0.0] * len(ids), stop, cached_tokens=cached)

    def _said(self, message: Mapping[str, Any], stop: StopReason) -> str:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else "".join(part["text"] for part in content)
        # Servers with a reasoning parser take the thinking out; a reply that ended by itself had closed it.
        taken_out = message.get("reasoning_content") or message.get("reasoning") or stop is StopReason.STOP
        return f"</think>{text}" if self.frame.thinking_is_open and taken_out and "</think>" not in text else text

    def redacted(self, text: str) -> str:
        return without_key(text, self.key)
