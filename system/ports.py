"""Ports of 127.0.0.1 for servers that are about to start.

A server binds its port seconds after it was chosen: another run that chooses meanwhile must not get the same one, or
either takes the other's server for its own. So the port is held by a socket that is bound and does not listen. Linux
lets a server bind such a port nevertheless, if both say SO_REUSEADDR, as servers do; who looks for a free port does
not say so and passes over it. The holder keeps it for as long as the server is to have it, its restarts included.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Container
from contextlib import ExitStack

from .errors import MemAgentError

PORTS = range(20000, 32000)
"""Below the kernel's usual range for outgoing connections: a client socket of somebody else must not take one."""


class NoPort(MemAgentError):
    """There are fewer free ports than servers."""


def hold_ports(count: int, avoid: Container[int] = ()) -> list[socket.socket]:
    """Sockets on different ports (``port_of``) that nobody holds now, none of them in ``avoid``. Close one to let its
    port go; children do not inherit them."""
    with ExitStack() as opened:
        held: list[socket.socket] = []
        for port in random.SystemRandom().sample(PORTS, len(PORTS)):
            if port not in avoid and (sock := _bound(port)) is not None:
                held.append(opened.enter_context(sock))
            if len(held) == count:
                opened.pop_all()
                return held
    raise NoPort(f"fewer than {count} free ports between {PORTS.start} and {PORTS.stop}")


def _bound(port: int) -> socket.socket | None:
    sock = socket.socket()
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        return None
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not before: what others hold would look free
    return sock


def port_of(sock: socket.socket) -> int:
    port: int = sock.getsockname()[1]
    return port


def free_ports(count: int) -> list[int]:
    """Different ports that nobody holds now, for whoever cannot hold them."""
    with ExitStack() as held:
        return [port_of(held.enter_context(sock)) for sock in hold_ports(count)]


def port_answers(port: int) -> bool:
    """Whether some server already listens on this port of 127.0.0.1."""
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
