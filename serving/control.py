"""What the clients of engines and router share: a call is answered with 200, or it failed in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import aiohttp

from ..system.errors import reason_of
from ..system.processes import FleetError
from ..system.text import one_line
from .engine_key import headers_with

CONTROL_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class ControlClient:
    """The control calls of the server at ``url``; nothing here retries."""

    url: str
    session: aiohttp.ClientSession
    key: str = field(default="", repr=False)
    """Of the server, where it wants one (``engine_key.py``)."""
    kind: ClassVar[str]
    """What messages call the server."""
    error: ClassVar[type[FleetError]]

    async def answers(self, path: str, timeout_s: float) -> bool:
        try:
            async with self.session.get(self.url + path, timeout=aiohttp.ClientTimeout(timeout_s)) as reply:
                return reply.status == 200
        except (aiohttp.ClientError, OSError):
            return False

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        timeout_s: float = CONTROL_TIMEOUT_S,
        params: Mapping[str, str] | None = None,
    ) -> Any:
        """The answer's JSON; an empty object where it has no body. Raises ``error``."""
        where = " ".join([f"{self.kind} {self.url}: {method} {path}", *(params or {}).values()])
        timeout = aiohttp.ClientTimeout(timeout_s)
        try:
            async with self.session.request(
                method, self.url + path, params=params, json=body, timeout=timeout, headers=headers_with(self.key)
            ) as reply:
                if reply.status != 200:
                    raise self.error(f"{where} answered {reply.status}: {one_line(await reply.text(), 300)}")
                is_json = reply.content_type == "application/json"
                return await reply.json() if is_json and await reply.read() else {}
        except (aiohttp.ClientError, OSError, ValueError) as cause:
            raise self.error(f"{where} failed: {reason_of(cause, 300)}") from cause
