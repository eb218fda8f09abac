"""What OpenAI's client is handed of answers, which it reads by itself: no body that is longer than ``answer_body``
says, none that another address is to give, and no header that says how to read it, or is to be kept."""

from __future__ import annotations

import importlib
from typing import Any

import openai

from ..system.redirects import REDIRECTS, Redirected
from .answer_body import beginning, whole_body
from .way_out import WayOut

_httpx: Any = importlib.import_module(openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])
"""What the installed client is built on: httpx, or httpx2 in newer versions."""

_KEPT_BACK = ("content-encoding", "content-length", "transfer-encoding", "set-cookie", "set-cookie2")
"""Headers that tell of a body as it was sent, while what is handed on is unpacked; and cookies, of which the client
would keep any number, and show a traceback of some."""


class BoundedTransport(_httpx.AsyncHTTPTransport):
    def __init__(self, most: int, connections: int, way: WayOut) -> None:
        limits = _httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        super().__init__(trust_env=way.own_certificates, limits=limits, proxy=way.proxy)
        self._most = most

    async def handle_async_request(self, request: Any) -> Any:
        """Raises BodyTooLong, or Redirected."""
        answer = await super().handle_async_request(request)
        answer.request = request
        try:
            if answer.status_code in REDIRECTS:
                raise Redirected(answer.status_code, answer.headers.get("location"))
            if answer.is_error:
                body = await beginning(answer.aiter_bytes())
            else:
                body = await whole_body(answer.aiter_bytes(), self._most)
        finally:
            await answer.aclose()
        headers = [pair for pair in answer.headers.multi_items() if pair[0].lower() not in _KEPT_BACK]
        told = _httpx.Response(answer.status_code, headers=headers, content=body, extensions=answer.extensions)
        told.encoding = "utf-8"  # a charset that the server names may be no text's, or take a square of its time
        return told
