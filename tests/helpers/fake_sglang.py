"""A worker that takes what SGLang takes at ``/generate``, refuses what it refuses, and answers in its shape.

tests/client/test_sglang_server.py holds ``refusal`` against the real server. The worker names no model files, so that
a router in front of it does not look for a tokenizer.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from mem_agent.tests.helpers.fake_router import log_probs_of

CONTEXT = 2048
_RESERVED = 7
"""Tokens of the context that a prompt cannot have."""
_NUMBER, _TEXTS = (int, float), (str, list)
_FIELDS: dict[str, Any] = {
    "max_new_tokens": int, "min_new_tokens": int, "n": int, "top_k": int, "sampling_seed": int, "stream_interval": int,
    "beam_width": int, "temperature": _NUMBER, "top_p": _NUMBER, "min_p": _NUMBER, "frequency_penalty": _NUMBER,
    "presence_penalty": _NUMBER, "repetition_penalty": _NUMBER, "stop": _TEXTS, "stop_regex": _TEXTS,
    "stop_token_ids": list, "choice": list, "logit_bias": dict, "watermark": dict, "custom_params": object,
    "json_schema": str, "regex": str, "ebnf": str, "structural_tag": str, "ignore_eos": bool, "no_stop_trim": bool,
    "skip_special_tokens": bool, "spaces_between_special_tokens": bool,
}


def refusal(body: dict[str, Any]) -> str | None:
    """Why SGLang would answer 400; unknown fields are an error inside ``sampling_params`` and nowhere else."""
    ids, params = body.get("input_ids"), body.get("sampling_params") or {}
    for name, value in params.items():
        if name not in _FIELDS:
            return f"unknown field {name}"
        wanted = _FIELDS[name]
        if not isinstance(value, (wanted, type(None)) if isinstance(wanted, type) else (*wanted, type(None))):
            return f"invalid type of {name}"
        if isinstance(value, bool) and wanted not in (bool, object):
            return f"invalid type of {name}"
    if not isinstance(body.get("return_logprob"), bool):
        return "invalid type of return_logprob"
    if not isinstance(ids, list) or not ids or not all(type(i) is int for i in ids):
        return "input_ids are not tokens"
    if not all(type(i) is int for i in params.get("stop_token_ids") or []):
        return "stop_token_ids are not tokens"
    given = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_new_tokens": 0, "max_new_tokens": 128}
    given |= {name: value for name, value in params.items() if value is not None}
    if given["temperature"] < 0 or not 0 < given["top_p"] <= 1 or (given["top_k"] < 1 and given["top_k"] != -1):
        return "temperature, top_p or top_k out of range"
    if not 0 <= given["min_new_tokens"] <= given["max_new_tokens"]:
        return "min_new_tokens out of range"
    if len(ids) > CONTEXT - _RESERVED or len(ids) + given["max_new_tokens"] > CONTEXT:
        return f"longer than the model's context length ({CONTEXT} tokens)"
    return None


@dataclass
class FakeWorker:
    """Samples ``reply``; the requests that ``held`` names by number wait to be aborted.

    With ``crowd``, which workers may share, no request is answered before that many are in flight. ``keys`` has the
    routing key of each request of ``requests``.
    """

    reply: list[int]
    held: tuple[int, ...] = ()
    crowd: asyncio.Barrier | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    port: int = 0
    _abort: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        number = len(self.requests)
        self.requests.append(body)
        self.keys.append(request.headers.get("X-SMG-Routing-Key"))
        reason = refusal(body)
        if reason is not None:
            return web.json_response({"error": {"message": reason}}, status=400)
        if number in self.held:
            await self._abort.wait()
            return web.json_response(self._answer(body, self.reply[:1], {"type": "abort", "message": "Aborted"}))
        if self.crowd:
            await self.crowd.wait()
        ids = self.reply[: body["sampling_params"].get("max_new_tokens") or 128]
        whole = ids == self.reply
        finish = {"type": "stop", "matched": ids[-1]} if whole else {"type": "length", "length": len(ids)}
        return web.json_response(self._answer(body, ids, finish))

    def _answer(self, body: dict[str, Any], ids: list[int], finish: dict[str, Any]) -> dict[str, Any]:
        log_probs = [[log_prob, token, None] for token, log_prob in zip(ids, log_probs_of(ids), strict=True)]
        meta = {
            "finish_reason": finish,
            "prompt_tokens": len(body["input_ids"]),
            "completion_tokens": len(ids),
            "cached_tokens": 0,
            "weight_version": "3",
            "weight_versions": [{"version": "3", "start": 0, "end": len(ids)}],
            "input_token_logprobs": [],
            "output_token_logprobs": log_probs,
        }
        return {"text": "", "output_ids": ids, "meta_info": meta}

    async def abort(self, request: web.Request) -> web.Response:
        if (await request.json()).get("abort_all"):
            self._abort.set()
        return web.Response()

    async def describe(self, _: web.Request) -> web.Response:
        return web.json_response({"served_model_name": "fake", "is_generation": True})


@asynccontextmanager
async def working(worker: FakeWorker):
    """Serve ``worker`` on a free loopback port; sets ``worker.port``."""
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/generate", worker.generate)
    app.router.add_post("/abort_request", worker.abort)
    for path in ("/health", "/model_info", "/server_info"):
        app.router.add_get(path, worker.describe)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    worker.port = site._server.sockets[0].getsockname()[1]
    try:
        yield worker
    finally:
        await runner.cleanup()
