"""The way to a chat server: by the environment's proxy and certificates, as other programs go, or straight.

::

    https://api.example.com/v1   HTTPS_PROXY=http://proxy:3128   through the proxy; SSL_CERT_FILE, SSL_CERT_DIR count
    https://api.example.com/v1   NO_PROXY=.example.com           straight; SSL_CERT_FILE, SSL_CERT_DIR count
    http://127.0.0.1:8000/v1     whatever is set                 straight

Invariant: a server of this machine, or one that the pack has started, is never asked through a proxy.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ..config import ConfigError
from ..system.server_url import is_loopback

_PROXY = re.compile(r"https?://(?:[^\s/@]*@)?(?:\[[0-9a-fA-F:.]+\]|[^\s/:@]+)(?::\d{1,5})?/?", re.IGNORECASE)
_CERTIFICATES = "SSL_CERT_FILE"
_HERE = ("0.0.0.0", "::")
"""Where a server of this machine says that it listens, and people copy it from."""


@dataclass(frozen=True, slots=True)
class WayOut:
    """Straight, unless it says otherwise."""

    proxy: str | None = field(default=None, repr=False)
    """Its address, in which a password may stand."""
    own_certificates: bool = False
    """Whether the environment may say which certificates are trusted."""


def way_out(url: str, is_own: bool) -> WayOut:
    """The way to ``url``, a server that the pack has started if ``is_own``.

    Raises ConfigError where the environment names a proxy that is not spoken to, or no file; never with a password.
    """
    parts = urlsplit(url)
    if is_own or is_loopback(parts.hostname or "") or parts.hostname in _HERE:
        return WayOut()
    certificates = os.environ.get(_CERTIFICATES)
    if certificates and not Path(certificates).is_file():
        raise ConfigError(f"{_CERTIFICATES}={certificates!r}: no such file; correct it, or unset it")
    proxies = {} if proxy_bypass(parts.netloc) else getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy:
        return WayOut(own_certificates=True)
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not _PROXY.fullmatch(proxy):
        names = f"{parts.scheme.upper()}_PROXY or ALL_PROXY"
        raise ConfigError(f"{names}: allowed: http://HOST:PORT; unset it, or name {parts.hostname} in NO_PROXY")
    return WayOut(proxy, own_certificates=True)
