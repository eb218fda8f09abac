"""The moments in which a fault can fall, told by the process that is in one to whoever drills it.

A process under drill stops at each moment until it is let go: a fault falls in its moment on a machine of any speed::

    trainer                                  drill
    announce(UPDATE of rollout 3)   ---->    kill the engine, or nothing
    (stands still)                  <----    go
    takes the step

The way is a socket in the file system, whose path is in the environment. Only observed processes know of it
(``observed_train.py``, ``observed_eval.py``): the product has no hook for it.
"""

from __future__ import annotations

import os
import selectors
import socket
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import orjson

MARK = "MEM_AGENT_DRILL"
"""The variable with the socket's path; by it whatever a drilled process has started is known as well."""


class Moment(StrEnum):
    START = "engine starting"
    LOAD = "checkpoint read"
    SAMPLING = "sampling"
    JOURNAL = "rollout journalled"
    UPDATE = "optimizer step"
    SYNC = "weights to an engine"
    EVALUATION = "evaluation"
    SAVE = "checkpoint written"
    ANSWER = "answer of an evaluation"


@dataclass(frozen=True)
class Announcement:
    moment: Moment
    rollout: int
    """From 0; -1 before the first."""
    count: int
    """How often this moment came in this phase of this rollout, from 1: the turn of a rollout."""
    pid: int


class Announcer:
    """Of one process."""

    def __init__(self) -> None:
        self.rollout = -1
        self._counts: dict[Moment, int] = {}

    def begin(self, rollout: int | None) -> None:
        """A phase begins, of ``rollout`` or of the one before."""
        self.rollout = self.rollout if rollout is None else rollout
        self._counts.clear()

    def announce(self, moment: Moment) -> None:
        """Stand still until the drill says go, or is gone."""
        self._counts[moment] = count = self._counts.get(moment, 0) + 1
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(os.environ[MARK])
            line.sendall(orjson.dumps(asdict(Announcement(moment, self.rollout, count, os.getpid()))) + b"\n")
            line.recv(1)


class Hub:
    """The drill's end: the next announcement, or that the process has ended; nothing is polled."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)

    def next(self, pid: int, patience_s: float) -> tuple[Announcement, socket.socket] | None:
        """None where the process ``pid`` has ended.

        Raises:
            TimeoutError: neither came; a hang, whatever the machine.
        """
        ended = os.pidfd_open(pid)
        try:
            with selectors.DefaultSelector() as either:
                either.register(self._listener, selectors.EVENT_READ)
                either.register(ended, selectors.EVENT_READ)
                while ready := either.select(patience_s):
                    if all(key.fileobj == ended for key, _ in ready):
                        return None
                    line, _ = self._listener.accept()
                    with line.makefile("rb") as file:
                        told = file.readline()
                    if told:  # else it was killed in between
                        values = orjson.loads(told)
                        return Announcement(**values | {"moment": Moment(values["moment"])}), line
        finally:
            os.close(ended)
        raise TimeoutError(f"process {pid} neither announced anything nor ended in {patience_s:.0f} s")

    def close(self) -> None:
        self._listener.close()


def go(line: socket.socket) -> None:
    """Let whoever stands at the other end go on, if it still lives."""
    with line:
        try:
            line.sendall(b"g")
        except BrokenPipeError:
            pass
