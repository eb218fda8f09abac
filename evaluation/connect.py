"""From ``BASE_URL`` (or the router that run-eval.sh started) to an ``EvalEndpoint``: what is spoken there.

``BASE_URL`` is ``http://HOST:PORT`` or ``https://HOST/v1``, as OpenAI's clients write it. ``EVAL_API=auto`` asks for
one token in each wording and takes the first that gives one, the exact ones first::

    generate -> HTTP 404, completions -> HTTP 200, but no reply, chat -> a reply      so: chat

The key comes from ``BASE_URL_KEY`` or ``OPENAI_API_KEY`` and is only sent to ``BASE_URL``, never to an own router.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp

from ..agents.prompts import chat_frame
from ..client.answer_body import most_bytes, whole_body
from ..client.chat_settings import key_from, without_key
from ..client.engine_api import MALFORMED, Dialect
from ..client.server_session import NO_ANSWER, server_session
from ..config import Config, ConfigError
from ..hooks.reader import reader_for
from ..system import server_url
from ..system.bounded_json import loads
from ..system.redirects import REDIRECTS
from .endpoint import Api, EvalEndpoint, frame_of
from .outage import POLL_S, TOO_MANY, Probe, probe, told
from .questions import EvalError

KEYS = ("BASE_URL_KEY", "OPENAI_API_KEY")
_BUDGETS = ("max_tokens", "max_completion_tokens")
"""OpenAI's two names of a reply's limit; some chat servers know one of them only."""
_TIMEOUT = aiohttp.ClientTimeout(30, connect=10)
_LISTED = 4096
"""Models, each in a few lines: some servers have thousands."""


async def connect(url: str, model: Path, config: Config, keys: Sequence[str] = KEYS) -> EvalEndpoint:
    """The server at ``url``, or at ``BASE_URL`` where that is empty; it has answered.

    ``keys`` names the variables that its key may be in.

    Raises:
        EvalError: nothing answers there, or nothing that can be used; the line says what was tried.
    """
    vocabulary = reader_for(str(model), config, "{}").vocabulary
    _give_back_memory()
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
    async with server_session() as session:
        if own:
            return await _first_that_answers(session, [endpoint])
        endpoint = await _with_model(session, endpoint, config)
        return await _first_that_answers(session, _wordings(endpoint, config.eval_api))


def _give_back_memory() -> None:
    """To the system, what loading a tokenizer has left free: 100 MB after a vocabulary of 150,000."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc has it
        trim(0)




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
    tried, elsewhere = [], True
    for endpoint in endpoints:
        found = await _probed(session, endpoint)
        if found.is_reply:
            return endpoint
        elsewhere &= found.status in REDIRECTS
        match found.status:
            case 0:
                why = f"nothing answers there ({found.text}); start it, or correct the URL"
                raise EvalError(f"{endpoint.base_url}: {why}")
            case 401 | 403:
                why = f"the key is refused; set {KEYS[0]} or {KEYS[1]}"
                raise EvalError(f"{endpoint.url}: HTTP {found.status}, {why}")
            case 429:
                why = f"too many requests ({found.text}); run it again later, or raise EVAL_SERVER_WAIT"
                raise EvalError(f"{endpoint.url}: HTTP 429, {why}")
        tried.append(f"{endpoint.api} -> HTTP {found.status}" + ", but no reply" * (found.status == 200))
    if elsewhere:  # as http:// leads to https:// whatever is asked
        raise EvalError(f"{endpoint.url}: {found.text}")
    what = f"{', '.join(tried)}: {found.text}"
    raise EvalError(f"{endpoints[0].base_url}: no usable API ({what}); see EVAL_API and EVAL_MODEL")


async def _probed(session: aiohttp.ClientSession, endpoint: EvalEndpoint) -> Probe:
    """Waits for its turn where the server takes no more requests for now, EVAL_SERVER_WAIT seconds at most."""
    deadline = time.monotonic() + endpoint.server_wait
    while (found := await probe(session, endpoint)).status == TOO_MANY:
        wait = max(POLL_S, found.wait)
        if time.monotonic() + wait > deadline:
            break
        await asyncio.sleep(wait)
    return found


async def _with_model(session: aiohttp.ClientSession, endpoint: EvalEndpoint, config: Config) -> EvalEndpoint:
    """The endpoint with the served model's name, and with its length where ENGINE_MAX_LEN says none."""
    served = await _served_models(session, endpoint)
    known = {without_key(str(entry.get("id")), endpoint.key): entry for entry in served}
    name = config.eval_model or (next(iter(known)) if len(known) == 1 else "")
    if not name and config.eval_api in ("auto", Api.COMPLETIONS, Api.CHAT) and known:
        some = told(endpoint, ", ".join(sorted(known)[:5]))
        raise EvalError(f"{endpoint.base_url} serves {len(known)} models ({some}); name one with EVAL_MODEL")
    length = known.get(name, {}).get("max_model_len")
    limit = endpoint.max_tokens or (length if type(length) is int and length > 0 else 0)
    return replace(endpoint, model=name, max_tokens=limit)


async def _served_models(session: aiohttp.ClientSession, endpoint: EvalEndpoint) -> list[dict[str, Any]]:
    """What ``/v1/models`` lists; nothing where the server has no such list."""
    try:
        async with session.get(
            f"{endpoint.base_url}/v1/models", headers=endpoint.headers(), timeout=_TIMEOUT
        ) as reply:
            if reply.status != 200:
                return []
            listed = loads(await whole_body(reply.content.iter_any(), most_bytes(_LISTED)))["data"]
            return [entry for entry in listed if isinstance(entry, dict)]
    except (aiohttp.ClientConnectionError, TimeoutError) as error:
        reason = told(endpoint, f"{type(error).__name__}: {error}")
        raise EvalError(
            f"{endpoint.base_url}: nothing answers there ({reason}); start it, or correct the URL"
        ) from None
    except (*NO_ANSWER, *MALFORMED):
        return []
