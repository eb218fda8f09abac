"""The address of a server, as people write it, and ports for servers that are about to start.

::

    checked_url     https://host/api/v1 -> https://host/api        whose paths begin with /v1, or are not OpenAI's
    chat_base       http://host:8000    -> http://host:8000/v1     OpenAI's base, to which /chat/completions is added
                    https://host/v1beta/openai                     kept, as is https://host/deployments/g?api-version=1
"""

from __future__ import annotations

import ipaddress
import random
import re
import socket
from collections.abc import Container, Mapping, Sequence
from itertools import islice
from urllib.parse import urlsplit, urlunsplit

from .errors import ConfigError

KEYS = ("API_KEY", "OPENAI_API_KEY")
"""Variables of a chat model's key, the first one first."""
_OPEN_QUERY = re.compile(r"(api-version=[\w.-]+)?")
"""Azure's; any other may be a key, and the address is shown."""
_ALLOWED = "allowed: http://HOST:PORT or https://HOST/v1"
PORTS = range(20000, 32000)
"""Below the kernel's usual range for outgoing connections: a client socket of somebody else must not take one."""


def checked_url(name: str, url: str, key_names: str) -> str:
    """``chat_base`` without a trailing ``/v1``."""
    return chat_base(name, url, key_names).removesuffix("/v1")


def chat_base(name: str, url: str, key_names: str) -> str:
    """``url``, which the setting ``name`` gives, with ``/v1`` where it has no path.

    Raises ConfigError, which never shows a password that stands in it; ``key_names`` says where a key belongs.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(f"{name}: not an address; {_ALLOWED}") from None
    if parts.username is not None or not _OPEN_QUERY.fullmatch(parts.query):
        raise ConfigError(f"{name} holds credentials, or a query that is not api-version=...; put the key into "
                          f"{key_names} instead")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ConfigError(f"{name}={url!r}: {_ALLOWED}")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") or "/v1", parts.query, ""))


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def key_from(environment: Mapping[str, str], names: Sequence[str] = KEYS) -> str:
    """The first key that is set, or none."""
    return next((environment[name].strip() for name in names if environment.get(name, "").strip()), "")


def without_key(text: str, key: str) -> str:
    """A server's error without the key that it may repeat."""
    return text.replace(key, "***") if key else text


def uses_proxy(url: str) -> bool:
    """Whether HTTPS_PROXY and its siblings count for ``url``: never on loopback."""
    return bool(url) and not is_loopback(urlsplit(url).hostname or "")


def seconds_asked(header: str | None) -> float:
    """The seconds of a ``Retry-After`` header, at most 60; 0 where it has none (a date is not read)."""
    try:
        return min(60.0, max(0.0, float(header or 0)))
    except ValueError:
        return 0.0


# --- ports of 127.0.0.1 ---------------------------------------------------------------------------------------------


def free_ports(count: int, avoid: Container[int] = ()) -> list[int]:
    """Different ports on which nobody listens, none of them in ``avoid``."""
    shuffled = random.SystemRandom().sample(PORTS, len(PORTS))
    return list(islice((number for number in shuffled if number not in avoid and is_free(number)), count))


def is_free(number: int) -> bool:
    """Whether a server of this user can listen there."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that linger are no hindrance
        try:
            sock.bind(("127.0.0.1", number))
        except OSError:
            return False
        return True
