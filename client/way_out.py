"""The way to a chat server: by the environment's proxy and certificates, as other programs go, or straight.

::

    https://api.example.com/v1   HTTPS_PROXY=http://proxy:3128   through the proxy; SSL_CERT_FILE, SSL_CERT_DIR count
    https://api.example.com/v1   NO_PROXY=.example.com           straight; SSL_CERT_FILE, SSL_CERT_DIR count
    http://127.0.0.1:8000/v1     whatever is set                 straight

Invariant: a server of this machine, or one that the pack has started, is never asked through a proxy.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from ..config import ConfigError

_CERTIFICATES = "SSL_CERT_FILE"
_HERE = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")


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
    host = (parts.hostname or "").rstrip(".")
    if is_own or _is_here(host):
        return WayOut()
    if parts.scheme == "https":
        _check_certificates(os.environ.get(_CERTIFICATES))
    proxies = {} if proxy_bypass(parts.netloc) or proxy_bypass(host) else getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    own_certificates = parts.scheme == "https"
    if not proxy:
        return WayOut(own_certificates=own_certificates)
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not _is_proxy(proxy):
        names = f"{parts.scheme.upper()}_PROXY or ALL_PROXY"
        raise ConfigError(f"{names}: allowed: http://HOST:PORT; unset it, or name {parts.hostname} in NO_PROXY")
    return WayOut(proxy, own_certificates)


def _is_here(host: str) -> bool:
    """Whether it is this machine, as people write it: also 127.1, 0.0.0.0 as servers say it, and by its own name or
    addresses."""
    if host in (*_HERE, socket.gethostname().lower()) or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(socket.inet_aton(host) if ":" not in host else host)
    except (OSError, ValueError):
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_unspecified or _is_own(address)


def _is_own(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether it is an address of this machine: then what is sent there comes from it (here nothing is sent). That it
    can be bound would tell nothing where ``ip_nonlocal_bind`` is set.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((str(address), 9))
            return ipaddress.ip_address(asking.getsockname()[0]) == address
    except (OSError, ValueError):
        return False


def _check_certificates(file: str | None) -> None:
    if not file:
        return
    if not Path(file).is_file():  # a pipe could be read once, and not again by who asks
        raise ConfigError(f"{_CERTIFICATES}={file!r}: no such file; correct it, or unset it")
    try:
        ssl.create_default_context(cafile=file)
    except OSError as error:  # SSLError is one: it holds no certificates
        raise ConfigError(f"{_CERTIFICATES}={file!r} cannot be used ({error}); correct it, or unset it") from None


def _is_proxy(address: str) -> bool:
    """Whether it is ``http://[USER:PASSWORD@]HOST[:PORT]``."""
    try:
        parts = urlsplit(address)
        port = parts.port
        httpx.Proxy(address)
    except (ValueError, httpx.InvalidURL):
        return False
    told = parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0
    return told and parts.path in ("", "/") and not re.search(r"[\s?#\\]", address)
