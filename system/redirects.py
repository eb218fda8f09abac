"""A server that sends its client elsewhere is refused: where to is its choice, and may be what listens on loopback."""

from __future__ import annotations

from typing import Any

from .errors import MemAgentError

REDIRECTS = (301, 302, 303, 307, 308)
"""HTTP statuses that clients' libraries follow of themselves."""


class Redirected(MemAgentError, ValueError):
    """A server wants another address to be asked; the same request would be told the same again.

    The message has the whole ``location``, whatever it is; whoever shows it takes secrets out, and cuts it.
    """

    def __init__(self, status: int, location: str | None) -> None:
        super().__init__(
            f"HTTP {status}, a redirect, which is not followed; if you mean the server that it leads to, "
            f"set the address to that one's: {location or '(none is named)'}"
        )
        self.status = status


def refusing_redirects(trace: Any) -> Any:
    """``trace``, an ``aiohttp.TraceConfig``, by which all requests of a session raise Redirected: every session of the
    pack has one. A middleware of aiohttp would do as well, which what hosts have installed may be too old for."""
    trace.on_request_redirect.append(_refuse)
    return trace


async def _refuse(session: Any, context: Any, asked: Any) -> None:
    """aiohttp calls it before it follows."""
    asked.response.close()
    raise Redirected(asked.response.status, asked.response.headers.get("Location"))
