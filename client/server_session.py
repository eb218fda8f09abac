"""HTTP sessions, and what a request raises where no answer comes."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import aiohttp

from ..system.server_url import is_loopback

NO_ANSWER = (aiohttp.ClientError, OSError, ValueError)
"""OSError includes TimeoutError; ValueError is an address that is none, or a body that is no JSON."""

LONGEST_WAIT_S = 60.0


def server_session(url: str = "", **options: Any) -> aiohttp.ClientSession:
    """A session for the server at ``url``; through the environment's proxy unless that is this machine, or not given.

    ``options`` are aiohttp's.
    """
    return aiohttp.ClientSession(trust_env=uses_proxy(url), **options)


def uses_proxy(url: str) -> bool:
    """Whether HTTPS_PROXY and its siblings count for ``url``: never on loopback."""
    return bool(url) and not is_loopback(urlsplit(url).hostname or "")


def seconds_asked(header: str | None) -> float:
    """The seconds of a ``Retry-After`` header, at most LONGEST_WAIT_S; 0 where it gives none (a date is not read)."""
    try:
        return min(LONGEST_WAIT_S, max(0.0, float(header or 0)))
    except ValueError:
        return 0.0
