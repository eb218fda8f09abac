"""From ``BASE_URL`` (or the router of engines that were started for this) to an ``EvalEndpoint``.

``BASE_URL`` is ``http://HOST:PORT`` or ``https://HOST/v1``, as OpenAI's clients write it. ``EVAL_API=auto`` asks for
one token on each API and takes the first that gives one, the exact ones first::

    generate -> HTTP 404, completions -> HTTP 200, but no reply, chat -> a reply      so: chat

The key comes from ``BASE_URL_KEY`` or ``OPENAI_API_KEY`` and is only sent to ``BASE_URL``, never to an own router.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from ..checkpoints.hf_model import load_vocabulary
from ..config import Config
from ..rollout_client import MALFORMED, NO_ANSWER, Dialect
from ..system.server_url import checked_url, key_from, seconds_asked, uses_proxy
from ..system.text import one_line
from .endpoint import Api, EvalEndpoint, frame_of
from .questions import EvalError

KEYS = ("BASE_URL_KEY", "OPENAI_API_KEY")
SERVER_WAIT_S = 600.0
"""How long a server that stopped answering may take to come back."""
_POLL_S = 2.0
_BUDGETS = ("max_tokens", "max_completion_tokens")
"""OpenAI's two names of a reply's limit; some chat servers know one of them only."""
_LIST_TIMEOUT, _PROBE_TIMEOUT = aiohttp.ClientTimeout(30, connect=10), aiohttp.ClientTimeout(60, connect=10)


@dataclass(frozen=True, slots=True)
class Probe:
    """What became of the smallest request."""

    status: int
    """Of HTTP; 0 where nothing answers."""
    text: str
    """The beginning of the answer, or the reason why there is none."""
    is_reply: bool = False
    wait: float = 0.0
    """Seconds that the server asks to be left alone."""


async def connect(
    url: str, model: Path, config: Config, keys: Sequence[str] = KEYS, served_model: str = ""
) -> EvalEndpoint:
    """The server at ``url``, or at ``BASE_URL`` where that is empty; it has answered.

    Args:
        keys: the variables that its key may be in.
        served_model: the model's name there; empty: the only one.

    Raises:
        EvalError: nothing answers there, or nothing that can be used; the line says what was tried.
    """
    vocabulary = load_vocabulary(model, config.trust_remote_code)
    endpoint = EvalEndpoint(
        dialect=Dialect.VLLM,
        base_url=url or checked_url("BASE_URL", config.base_url, " or ".join(keys)),
        max_tokens=config.engine_max_len,
        vocabulary=vocabulary,
        frame=frame_of(vocabulary, config.mem_thinking),
        key="" if url else key_from(os.environ, keys),
    )
    async with aiohttp.ClientSession(trust_env=uses_proxy(endpoint.base_url)) as session:
        if url:
            return await _first_that_answers(session, [endpoint])
        endpoint = await _with_model(session, endpoint, config, served_model)
        return await _first_that_answers(session, _apis(endpoint, config))


async def back(endpoint: EvalEndpoint) -> None:
    """Return once the server answers again. Raises EvalError after ``SERVER_WAIT_S``."""
    async with aiohttp.ClientSession(trust_env=uses_proxy(endpoint.base_url)) as session:
        found = await _waited_for(session, endpoint, lambda found: not found.is_reply)
    if not found.is_reply:
        raise EvalError(f"{endpoint.base_url} has not answered for {SERVER_WAIT_S:g} s ({found.text}); the same "
                        "command continues")


async def _waited_for(session: aiohttp.ClientSession, endpoint: EvalEndpoint, vain: Any) -> Probe:
    """The first probe that is not ``vain``, or the last one before ``SERVER_WAIT_S`` are over."""
    deadline = time.monotonic() + SERVER_WAIT_S
    while vain(found := await probe(session, endpoint)):
        wait = max(_POLL_S, found.wait)
        if time.monotonic() + wait > deadline:
            break
        await asyncio.sleep(wait)
    return found


def _apis(endpoint: EvalEndpoint, config: Config) -> list[EvalEndpoint]:
    """What is tried: of a chat server also whether it takes MEM_THINKING, where the model's template knows it."""
    switch = [config.mem_thinking] if "enable_thinking" in str(endpoint.vocabulary.tokenizer.chat_template) else []
    found = []
    for api in list(Api) if config.eval_api == "auto" else [Api(config.eval_api)]:
        chat = api is Api.CHAT
        found += [
            replace(endpoint, api=api, budget_name=budget, thinking=thinking)
            for thinking in ([*switch, None] if chat else [None]) for budget in (_BUDGETS if chat else _BUDGETS[:1])
        ]
    return found


async def _first_that_answers(session: aiohttp.ClientSession, endpoints: list[EvalEndpoint]) -> EvalEndpoint:
    tried: dict[str, str] = {}
    for endpoint in endpoints:
        found = await _waited_for(session, endpoint, lambda found: found.status == 429)
        if found.is_reply:
            return endpoint
        match found.status:
            case 0:
                reason = f"nothing answers there ({found.text}); start it, or correct the URL"
                raise EvalError(f"{endpoint.base_url}: {reason}")
            case 401 | 403:
                raise EvalError(f"{endpoint.url}: HTTP {found.status}, the key is refused; set {' or '.join(KEYS)}")
            case 429:
                raise EvalError(f"{endpoint.url}: HTTP 429, too many requests ({found.text}); run it again later")
        tried[endpoint.api] = f"{endpoint.api} -> HTTP {found.status}" + ", but no reply" * (found.status == 200)
    what = f"{', '.join(tried.values())}: {found.text}"
    raise EvalError(f"{endpoints[0].base_url}: no usable API ({what}); see EVAL_API and --served-model")


async def probe(session: aiohttp.ClientSession, endpoint: EvalEndpoint) -> Probe:
    """Ask for one token. HTTP 200 is not enough: the body must be readable as a reply."""
    try:
        async with session.post(
            endpoint.url, json=endpoint.probe(), headers=endpoint.headers(), timeout=_PROBE_TIMEOUT
        ) as reply:
            text, wait = await reply.text(errors="replace"), seconds_asked(reply.headers.get("Retry-After"))
            is_reply = reply.status == 200 and _is_reply(endpoint, text)
            return Probe(reply.status, _shown(endpoint, text), is_reply, wait)
    except NO_ANSWER as error:
        return Probe(0, _shown(endpoint, f"{type(error).__name__}: {error}"))


def _is_reply(endpoint: EvalEndpoint, text: str) -> bool:
    try:
        endpoint.parse_response(orjson.loads(text))
    except MALFORMED:
        return False
    return True


def _shown(endpoint: EvalEndpoint, text: str) -> str:
    """The beginning of what a server said, for a message."""
    return one_line(endpoint.redacted(text), 200)


async def _with_model(
    session: aiohttp.ClientSession, endpoint: EvalEndpoint, config: Config, name: str
) -> EvalEndpoint:
    """The endpoint with the served model's name, and with its length where ENGINE_MAX_LEN says none."""
    served = {str(entry.get("id")): entry for entry in await _served_models(session, endpoint)}
    name = name or (next(iter(served)) if len(served) == 1 else "")
    if not name and config.eval_api != Api.GENERATE and served:
        some = ", ".join(sorted(served)[:5])
        raise EvalError(f"{endpoint.base_url} serves {len(served)} models ({some}); name one with --served-model")
    limit = endpoint.max_tokens or served.get(name, {}).get("max_model_len") or 0
    return replace(endpoint, model=name, max_tokens=limit)


async def _served_models(session: aiohttp.ClientSession, endpoint: EvalEndpoint) -> list[dict[str, Any]]:
    """What ``/v1/models`` lists; empty where the server has no such list."""
    try:
        async with session.get(
            f"{endpoint.base_url}/v1/models", headers=endpoint.headers(), timeout=_LIST_TIMEOUT
        ) as reply:
            return list((await reply.json())["data"]) if reply.status == 200 else []
    except (aiohttp.ClientConnectionError, TimeoutError) as error:
        reason = _shown(endpoint, f"{type(error).__name__}: {error}")
        raise EvalError(
            f"{endpoint.base_url}: nothing answers there ({reason}); start it, or correct the URL"
        ) from None
    except (*NO_ANSWER, *MALFORMED):
        return []
