"""Ports of 127.0.0.1 for servers that are about to start.

A server binds its port seconds after it was chosen: another run that chooses meanwhile must not get the same one, or
either takes the other's server for its own. So a port is held, for as long as the server is to have it, its restarts
included, in two ways:

- for other runs of this pack by a name that one socket of a machine (of a network namespace) can have;
- for everybody else by a socket that is bound to the port and does not listen. Linux lets a server bind such a port
  nevertheless, if both say SO_REUSEADDR, as servers do; who looks for a free port does not say so and passes over it.
"""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Container
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from .processes import FleetError

PORTS = range(20000, 32000)
"""Below the kernel's usual range for outgoing connections: a client socket of somebody else must not take one."""


class NoPort(FleetError):
    """There are fewer free ports than servers."""


@dataclass(frozen=True)
class HeldPort:
    """A port that is nobody else's until it is closed or its process ends; programs that this starts lack it."""

    number: int
    _sockets: tuple[socket.socket, ...]

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()


def hold_ports(count: int, avoid: Container[int] = ()) -> list[HeldPort]:
    """Different ports on which nobody listens, which nobody holds, and none of which is in ``avoid``."""
    with ExitStack() as opened:
        held: list[HeldPort] = []
        for number in random.SystemRandom().sample(PORTS, len(PORTS)):
            if len(held) == count:
                break
            if number not in avoid and (port := _held(number, shared=False)) is not None:
                held.append(opened.enter_context(closing(port)))
        if len(held) < count:
            raise NoPort(f"fewer than {count} free ports between {PORTS.start} and {PORTS.stop}")
        opened.pop_all()
        return held


def hold_port(number: int) -> HeldPort | None:
    """This very port, or None where somebody listens on it or another run holds it. One that a server has just left
    is free, though connections to that server may linger for a minute."""
    return _held(number, shared=True)


def _held(number: int, shared: bool) -> HeldPort | None:
    """``shared``: what others hold without listening, connections that linger among it, is no hindrance."""
    with ExitStack() as opened:
        sock = opened.enter_context(socket.socket())
        claim = opened.enter_context(socket.socket(socket.AF_UNIX))
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", number))
            claim.bind(f"\0mem_agent-port-{number}")
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not before: what others hold would look free
        opened.pop_all()
        return HeldPort(number, (sock, claim))


def listening_users(number: int) -> set[int] | None:
    """The users who listen on this port, on any address of this machine; None where the system does not tell."""
    found = set()
    for table in _LISTENERS:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            if table == _LISTENERS[0]:
                return None
            continue  # a machine without IPv6
        for _, address, _, state, _, _, _, user, *_ in map(str.split, lines):
            if state == _LISTENS and int(address.rpartition(":")[2], 16) == number:
                found.add(int(user))
    return found


_LISTENERS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"


def free_ports(count: int) -> list[int]:
    """Different ports that nobody holds now, for whoever cannot hold them."""
    with ExitStack() as held:
        return [held.enter_context(closing(port)).number for port in hold_ports(count)]
