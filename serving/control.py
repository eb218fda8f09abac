"""What the clients of engines and router share: a call is answered with 200, or it failed in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import aiohttp

from ..client.answer_body import beginning, most_bytes, whole_body
from ..client.engine_api import MALFORMED
from ..client.server_session import NO_ANSWER
from ..system.printable import one_line
from ..system.processes import FleetError
from .engine_key import headers_with

_TOLD = 300
"""Characters of what a server said."""


@dataclass(frozen=True)
class ControlClient:
    """The control calls of the server at ``url``; nothing here retries."""

    url: str
    session: aiohttp.ClientSession
    """Of ``server_session``."""
    key: str = field(default="", repr=False)
    """Of the server, where it wants one (``engine_key.py``)."""
    kind: ClassVar[str]
    """What messages call the server."""
    error: ClassVar[type[FleetError]]

    async def answers(self, path: str, timeout_s: float) -> bool:
        try:
            async with self.session.get(self.url + path, timeout=aiohttp.ClientTimeout(timeout_s)) as reply:
                return reply.status == 200
        except NO_ANSWER:
            return False

    async def call(
        self,
        method: str,
        path: str,
        *,
        timeout_s: float,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        read: Callable[[bytes], Any] = bytes,
    ) -> Any:
        """What ``read`` makes of the answer's body, which is as short as one without tokens. Raises ``error``."""
        where = " ".join([f"{self.kind} {self.url}: {method} {path}", *(params or {}).values()])
        timeout = aiohttp.ClientTimeout(timeout_s)
        try:
            async with self.session.request(
                method, self.url + path, params=params, json=body, timeout=timeout, headers=headers_with(self.key)
            ) as reply:
                if reply.status != 200:
                    text = (await beginning(reply.content.iter_any())).decode(errors="replace")
                    raise self.error(f"{where} answered {reply.status}: {one_line(text, _TOLD)}")
                return read(await whole_body(reply.content.iter_any(), most_bytes(0)))
        except (*NO_ANSWER, *MALFORMED) as cause:  # too long, or not to be read
            said = one_line(f"{type(cause).__name__} {cause}", _TOLD)
            raise self.error(f"{where} failed: {said}") from cause
