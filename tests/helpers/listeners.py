"""Which addresses processes listen on for TCP, from /proc."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_LISTEN = "0A"


def listeners(pids: Iterable[int]) -> set[tuple[str, int]]:
    """(address, port) of every listening TCP socket that one of the processes holds; those that have ended hold none.

    An IPv4 address is told as one, also where an IPv6 socket has it.
    """
    inodes = {inode for pid in pids for inode in _sockets(pid)}
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and fields[9] in inodes:
                address, port = fields[1].split(":")
                found.add((socket.inet_ntop(family, _bytes(address)).removeprefix("::ffff:"), int(port, 16)))
    return found


def _sockets(pid: int) -> set[str]:
    links = []
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                links.append(os.readlink(fd))
    return {link[8:-1] for link in links if link.startswith("socket:[")}


def _bytes(address: str) -> bytes:
    """The kernel prints words in the machine's order."""
    words = [int(address[i : i + 8], 16) for i in range(0, len(address), 8)]
    return struct.pack(f"={len(words)}I", *words)
