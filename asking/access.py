"""Who may ask, and how much at once.

- Without a key the endpoint listens on this machine alone; with keys every path but ``/health`` wants one.
- A page in a browser may not ask, whatever machine it is on, unless its origin is allowed: otherwise any page that
  somebody visits could read documents and use the model behind a loopback address, where no key is needed. For the
  same reason a request without a key must name this machine as its host, which a page that has its own name point
  here (DNS rebinding) does not.
- Keys are compared in constant time, and never shown.
"""

from __future__ import annotations

import hmac
import socket
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from yarl import URL

from ..config import ConfigError
from ..system.server_url import is_loopback
from .request_error import RequestError

KEY_VARIABLE = "MEM_AGENT_API_KEY"
_OPEN = frozenset({"/health"})
_LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]"})


def read_keys(file: Path | None, env: Mapping[str, str]) -> tuple[str, ...]:
    """Those of ``--api-key-file``, one a line, else that of MEM_AGENT_API_KEY.

    Raises:
        ConfigError: the file holds none, or one that no header can carry.
    """
    if file is None:
        keys = [env.get(KEY_VARIABLE, "").strip()]
    else:
        # Bytes that are no text become signs that no key may hold, so that they are refused in one line below.
        keys = [line.strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
        if not any(keys):
            raise ConfigError(f"--api-key-file {file}: no key in it; write one a line")
    if not all(key.isascii() and key.isprintable() and " " not in key for key in keys):
        raise ConfigError(f"{file or KEY_VARIABLE}: a key is letters, digits and signs, without blanks")
    return tuple(filter(None, keys))


def check_host(host: str, keys: Sequence[str]) -> None:
    """Raises ConfigError where others could ask without a key."""
    if not keys and not is_loopback(host):
        raise ConfigError(f"--host {host}: other machines may only ask with a key; set {KEY_VARIABLE} or "
                          "--api-key-file, or leave --host out")


def check_address(host: str, port: int) -> None:
    """Raises ConfigError where nothing can listen now: engines take minutes, and would have started for nothing."""
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(address)
    except OSError as error:
        raise ConfigError(f"--host {host} --port {port}: {error.strerror}; name another (--port 0 takes a free one)") \
            from None


def checked_origin(given: str) -> str:
    """As browsers send it: a scheme, a host and a port unless it is the usual one, in small letters; or ``*``.

    Raises:
        ConfigError: no page has such an origin, so that none would be let in.
    """
    if given == "*":
        return given
    with suppress(ValueError):
        url = URL(given.strip())
        if url == url.origin():  # a path, a query or a password is no part of one
            return str(url.origin())
    raise ConfigError(f"--allow-origin {given}: expected https://HOST, http://HOST:PORT or *")


@dataclass(frozen=True, slots=True)
class Access:
    keys: tuple[str, ...] = field(default=(), repr=False)
    origins: tuple[str, ...] = ()
    """Of pages that may ask; ``*``: of any."""

    def check(self, path: str, headers: Mapping[str, str]) -> None:
        """Raises RequestError."""
        origin = headers.get("Origin")
        if origin and not self.allows(origin):
            raise RequestError(403, f"pages of {origin:.200} may not ask; start with --allow-origin to let them",
                               code="origin_not_allowed")
        if path in _OPEN:
            return
        if not self.keys:
            self._check_name(headers.get("Host", ""))
        elif not self._has_key(headers.get("Authorization", "")):
            raise RequestError(401, "the key is missing or wrong; send Authorization: Bearer KEY",
                               code="invalid_api_key")

    def allows(self, origin: str) -> bool:
        return "*" in self.origins or origin in self.origins

    def _has_key(self, header: str) -> bool:
        scheme, _, given = header.partition(" ")
        told = given.strip().encode("utf-8", "surrogateescape")
        matches = [hmac.compare_digest(told, key.encode()) for key in self.keys]
        return scheme.lower() == "bearer" and any(matches)

    def _check_name(self, host: str) -> None:
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() not in _LOCAL and not is_loopback(name.strip("[]")):
            raise RequestError(403, f"the host {host:.200} is not this machine; use a key to be reached by that name",
                               code="host_not_allowed")


@dataclass
class Admission:
    """Lets so many readings in at once; the others are told when to come back."""

    most: int
    now: int = 0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=32))
    """Seconds that readings took."""

    @contextmanager
    def reading(self, places: int = 1) -> Iterator[None]:
        """Raises RequestError where there is no place."""
        if self.now + places > self.most:
            raise RequestError(429, f"{self.now} documents are being read (--concurrency); try again later",
                               code="too_many_requests", retry_after=self.wait_s)
        self.now += places
        began = monotonic()
        try:
            yield
        finally:
            self.now -= places
            self.recent.append(monotonic() - began)

    @property
    def wait_s(self) -> int:
        """Until a place is free: what a reading takes, shared among the places."""
        usual = sum(self.recent) / len(self.recent) if self.recent else 1.0
        return min(60, max(1, round(usual / self.most)))
