"""The key of an engine: who has it may load weights and pause, other users of the machine may not.

vLLM's own ``--api-key`` guards ``/v1`` and generation, and leaves exactly the control calls open. So the fleet starts
its servers with ``--middleware mem_agent.serving.engine_key.RequireKey``, and gives each a new key in an environment
variable, which other users cannot read. Without it a server answers what the router and its clients call, ``OPEN``,
and 401 to everything else. The router cannot have a key: vllm-router 0.1.17 checks none.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ..rollout_client import GENERATE

VARIABLE = "MEM_AGENT_ENGINE_KEY"
OPEN = frozenset({"/health", "/ping", "/version", "/metrics", "/v1/models", "/v1/completions", "/v1/chat/completions",
                  GENERATE})

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def new_key() -> str:
    return secrets.token_urlsafe(32)


def headers_with(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


class RequireKey:
    """An ASGI application around vLLM's. Raises KeyError where the server was given no key."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._app = app
        self._expected = f"Bearer {os.environ[VARIABLE]}".encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        is_open = scope["type"] == "lifespan" or (scope["type"] == "http" and scope["path"] in OPEN)
        if is_open or secrets.compare_digest(given, self._expected):
            return await self._app(scope, receive, send)
        assert scope["type"] == "http", "vLLM's control calls are HTTP"
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"this server's control calls need the key of its run\n"})
