"""From ``BASE_URL`` (or the router that run-eval.sh started) to an ``EvalEndpoint``: what is spoken there.

``BASE_URL`` is ``http://HOST:PORT`` or ``https://HOST/v1``, as OpenAI's clients write it. ``EVAL_API=auto`` asks for
one token in each wording and takes the first that gives one, the exact ones first::

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

from ..agents.prompts import chat_frame
from ..client.chat_settings import key_from
from ..client.engine_api import MALFORMED, Dialect
from ..client.server_session import NO_ANSWER, seconds_asked, server_session
from ..config import Config, ConfigError
from ..hooks.reader import reader_for
from ..system import server_url
from ..system.text import one_line
from .endpoint import POLL_S, Api, EvalEndpoint, frame_of
from .questions import EvalError

KEYS = ("BASE_URL_KEY", "OPENAI_API_KEY")
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


async def connect(url: str, model: Path, config: Config, keys: Sequence[str] = KEYS) -> EvalEndpoint:
    """The server at ``url``, or at ``BASE_URL`` where that is empty; it has answered.

    ``keys`` names the variables that its key may be in.

    Raises:
        EvalError: nothing answers there, or nothing that can be used; the line says what was tried.
    """
    vocabulary = reader_for(str(model), config, "{}").vocabulary
    own = bool(url)
    endpoint = EvalEndpoint(
        dialect=Dialect.VLLM,
        base_url=checked_url("--url" if own else "BASE_URL", url or config.base_url),
        max_tokens=config.mem_max_prompt_tokens or config.engine_max_len,
        vocabulary=vocabulary,
        frame=frame_of(chat_frame(vocabulary.tokenizer, config.mem_thinking, {})),
        key="" if own else key_from(os.environ, keys),
        server_wait=config.eval_server_wait,
    )
    async with server_session(endpoint.base_url) as session:
        if own:
            return await _first_that_answers(session, [endpoint])
        endpoint = await _with_model(session, endpoint, config)
        return await _first_that_answers(session, _wordings(endpoint, config.eval_api))


def checked_url(name: str, url: str) -> str:
    """``url`` without a trailing ``/v1``. Raises EvalError, which never shows a password that stands in it."""
    try:
        return server_url.checked_url(name, url, " or ".join(KEYS))
    except ConfigError as error:
        raise EvalError(str(error)) from None


def _wordings(endpoint: EvalEndpoint, api: str) -> list[EvalEndpoint]:
    wanted = list(Api) if api == "auto" else [Api(api)]
    budgets = {Api.CHAT: _BUDGETS}
    return [replace(endpoint, api=a, budget_name=b) for a in wanted for b in budgets.get(a, _BUDGETS[:1])]


async def _first_that_answers(session: aiohttp.ClientSession, endpoints: list[EvalEndpoint]) -> EvalEndpoint:
    tried = []
    for endpoint in endpoints:
        found = await _probed(session, endpoint)
        if found.is_reply:
            return endpoint
        match found.status:
            case 0:
                reason = f"nothing answers there ({found.text}); start it, or correct the URL"
                raise EvalError(f"{endpoint.base_url}: {reason}")
            case 401 | 403:
                reason = f"the key is refused; set {KEYS[0]} or {KEYS[1]}"
                raise EvalError(f"{endpoint.url}: HTTP {found.status}, {reason}")
            case 429:
                reason = f"too many requests ({found.text}); run it again later, or raise EVAL_SERVER_WAIT"
                raise EvalError(f"{endpoint.url}: HTTP 429, {reason}")
        tried.append(f"{endpoint.api} -> HTTP {found.status}" + ", but no reply" * (found.status == 200))
    what = f"{', '.join(tried)}: {found.text}"
    raise EvalError(f"{endpoints[0].base_url}: no usable API ({what}); see EVAL_API and EVAL_MODEL")


async def _probed(session: aiohttp.ClientSession, endpoint: EvalEndpoint) -> Probe:
    """Waits for its turn where the server takes no more requests for now, EVAL_SERVER_WAIT seconds at most."""
    deadline = time.monotonic() + endpoint.server_wait
    while (found := await probe(session, endpoint)).status == 429:
        wait = max(POLL_S, found.wait)
        if time.monotonic() + wait > deadline:
            break
        await asyncio.sleep(wait)
    return found


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


async def _with_model(session: aiohttp.ClientSession, endpoint: EvalEndpoint, config: Config) -> EvalEndpoint:
    """The endpoint with the served model's name, and with its length where ENGINE_MAX_LEN says none."""
    served = await _served_models(session, endpoint)
    known = {str(entry.get("id")): entry for entry in served}
    name = config.eval_model or (next(iter(known)) if len(known) == 1 else "")
    if not name and config.eval_api in ("auto", Api.COMPLETIONS, Api.CHAT) and known:
        some = ", ".join(sorted(known)[:5])
        raise EvalError(f"{endpoint.base_url} serves {len(known)} models ({some}); name one with EVAL_MODEL")
    limit = endpoint.max_tokens or known.get(name, {}).get("max_model_len") or 0
    return replace(endpoint, model=name, max_tokens=limit)


async def _served_models(session: aiohttp.ClientSession, endpoint: EvalEndpoint) -> list[dict[str, Any]]:
    """What ``/v1/models`` lists; nothing where the server has no such list."""
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
