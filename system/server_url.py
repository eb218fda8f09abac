"""The address of a server, as people write it.

::

    checked_url     https://host/api/v1 -> https://host/api        whose paths begin with /v1, or are not OpenAI's
    chat_base       http://host:8000    -> http://host:8000/v1     OpenAI's base, to which /chat/completions is added
                    https://host/v1beta/openai                     kept, as is https://host/deployments/g?api-version=1
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit, urlunsplit

from .errors import ConfigError

_OPEN_QUERY = re.compile(r"(api-version=[\w.-]+)?")
"""Azure's; any other may be a key, and the address is shown."""
_ALLOWED = "allowed: http://HOST:PORT or https://HOST/v1"


def checked_url(name: str, url: str, key_names: str) -> str:
    """``url``, which the setting ``name`` gives, without a trailing ``/v1``.

    Raises ConfigError, which never shows a password that stands in it; ``key_names`` says where a key belongs.
    """
    parts = _parts(name, url)
    if parts.username is not None or parts.query:
        raise ConfigError(f"{name} holds credentials or a query; put the key into {key_names} instead")
    _check_server(name, url, parts)
    return url.rstrip("/").removesuffix("/v1")


def chat_base(name: str, url: str, key_names: str) -> str:
    """``url``, which the setting ``name`` gives, with ``/v1`` where it has no path.

    Raises ConfigError, which never shows a password that stands in it; ``key_names`` says where a key belongs.
    """
    parts = _parts(name, url)
    if parts.username is not None or not _OPEN_QUERY.fullmatch(parts.query):
        raise ConfigError(f"{name} holds credentials, or a query that is not api-version=...; put the key into "
                          f"{key_names} instead")
    _check_server(name, url, parts)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") or "/v1", parts.query, ""))


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parts(name: str, url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - which is read when it is asked for
    except ValueError:
        raise ConfigError(f"{name}: not an address; {_ALLOWED}") from None
    return parts


def _check_server(name: str, url: str, parts: SplitResult) -> None:
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ConfigError(f"{name}={url!r}: {_ALLOWED}")
