"""Sessions in which servers are asked, and what asking raises."""

from __future__ import annotations

from typing import Any

import aiohttp
from aiohttp.http import HttpProcessingError

from ..system.redirects import refusing_redirects

NO_ANSWER = (aiohttp.ClientError, HttpProcessingError, TimeoutError, OSError, ValueError)
"""What asking raises where no answer comes; ValueErrors are of addresses that are none, and of a Redirected; an
HttpProcessingError is no ClientError, and raised within a body: by a line too long, or a chunk that is none."""


def server_session(**options: Any) -> aiohttp.ClientSession:
    """One that asks no address but those that it is given, and not through a proxy; ``options`` are aiohttp's."""
    traces = [refusing_redirects(aiohttp.TraceConfig())]
    return aiohttp.ClientSession(trust_env=False, trace_configs=traces, **options)
