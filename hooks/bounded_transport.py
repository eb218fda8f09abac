"""The bound of ``answer_body`` for OpenAI's client, which reads bodies by itself: it is handed none that is longer."""

from __future__ import annotations

import httpx2

from .answer_body import beginning, whole_body

_OF_THE_WIRE = ("content-encoding", "content-length", "transfer-encoding")
"""Headers that tell of a body as it was sent; what is handed on is unpacked."""


class BoundedTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, most: int, connections: int) -> None:
        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
        super().__init__(trust_env=False, limits=limits)
        self._most = most

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises BodyTooLong."""
        answer = await super().handle_async_request(request)
        answer.request = request
        try:
            if answer.is_error:
                body = await beginning(answer.aiter_bytes())
            else:
                body = await whole_body(answer.aiter_bytes(), self._most)
        finally:
            await answer.aclose()
        headers = [pair for pair in answer.headers.multi_items() if pair[0].lower() not in _OF_THE_WIRE]
        return httpx2.Response(answer.status_code, headers=headers, content=body, extensions=answer.extensions)
