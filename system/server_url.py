"""The address of a server, as people write it."""

from __future__ import annotations

from urllib.parse import urlsplit

from .errors import ConfigError


def checked_url(name: str, url: str, key_names: str) -> str:
    """``url``, which the setting ``name`` gives, without a trailing ``/v1``.

    Raises ConfigError, which never shows a password that stands in it; ``key_names`` says where a key belongs.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(f"{name}: not an address; allowed: http://HOST:PORT or https://HOST/v1") from None
    if parts.username is not None or parts.query:
        raise ConfigError(f"{name} holds credentials or a query; put the key into {key_names} instead")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ConfigError(f"{name}={url!r}: allowed: http://HOST:PORT or https://HOST/v1")
    return url.rstrip("/").removesuffix("/v1")
