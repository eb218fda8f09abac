"""Ports of 127.0.0.1 for servers that are about to start."""

from __future__ import annotations

import random
import socket
from collections.abc import Container
from contextlib import ExitStack

PORTS = range(20000, 32000)
"""Below the kernel's usual range for outgoing connections: a client socket of somebody else must not take one."""


def free_ports(count: int, avoid: Container[int] = ()) -> list[int]:
    """Different ports on which nobody listens, none of them in ``avoid``."""
    with ExitStack() as bound:
        found: list[int] = []
        while len(found) < count:
            number = random.SystemRandom().choice(PORTS)
            if number not in avoid and number not in found:
                try:
                    bound.enter_context(socket.socket()).bind(("127.0.0.1", number))
                except OSError:
                    continue
                found.append(number)
        return found


def is_free(number: int) -> bool:
    """Whether a server of this user can listen there."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that linger are no hindrance
        try:
            sock.bind(("127.0.0.1", number))
        except OSError:
            return False
        return True
