"""Documents of strangers, read in a process that can be stopped (``document_worker``), whoever waits for them.

::

    read_bounded("paper.pdf", content)                here: text, or a DocumentError that says which limit it was
    with BoundedReader() as reader:                   for many, without a start for each (``document_workers``)
    Reading("a.pdf", content, allowed)                for those that wait in their own way (``asking.document_texts``)

Invariants:
- whoever waits parses nothing but plain text;
- a process reads one file and has none of the user's keys: what it reads may be written to take it over;
- a process ends with whoever waits for it.
"""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import IO

from ..system import bounded_json
from ..system.printable import one_line
from ..system.process_environment import without_secrets
from ..system.python_command import python_module
from . import document_worker, document_workers
from .document_formats import ORDINARY, Document, DocumentError, Limits, Unit, is_plain, read_document

MEMORY = 2**31
_SECONDS, _SECONDS_TIMES, _MEMORY_TIMES = 600, 10 / 2**20, 64
"""For a file, and more for each byte of it: tables of a page take 4 s and 45 MiB a MiB."""
_MORE_S = 10
"""CPU seconds beyond the limit: whoever waits is to end a process first, for the reason that it can tell."""
_SAID = 400
"""Characters of what a process says to people: a reason that is ours has half of them."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a process may take; ``said`` and ``remedy`` are for people."""

    seconds: float
    """0: no limit."""
    memory: int
    """Bytes of addresses."""
    said: str
    remedy: str


def allowed_for(length: int) -> Allowed:
    """For a file of so many bytes."""
    return Allowed(math.ceil(_SECONDS + _SECONDS_TIMES * length), MEMORY + _MEMORY_TIMES * length,
                   "the limit for its length", "split it, or save it as plain text")


def read_bounded(name: str, content: bytes, limits: Limits = ORDINARY) -> Document:
    """Raises DocumentError, also where it takes more than a file of its length may."""
    with BoundedReader() as reader:
        return reader.read(name, content, limits)


class BoundedReader:
    """Reads one file after the other. What forks the processes is started for the first that needs one, and again
    behind one that was stopped."""

    def __init__(self) -> None:
        self._forks: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None

    def __enter__(self) -> BoundedReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def read(self, name: str, content: bytes, limits: Limits = ORDINARY) -> Document:
        """As ``read_bounded``."""
        if len(content) > limits.file_bytes or is_plain(name, content):
            return read_document(name, content, limits)
        reading = Reading(name, content, allowed_for(len(content)), limits)
        with reading.files() as (asked, said):
            reading.ask(asked)
            try:
                code = self._run(reading, asked, said)
            except TimeoutError:
                self._end()
                raise reading.too_slow() from None
            except BaseException:
                self._end()
                raise
            return reading.document(said, code)

    def _run(self, reading: Reading, asked: IO[bytes], said: IO[bytes]) -> int:
        """Its exit code. Raises TimeoutError."""
        line = self._line or self._start()
        line.settimeout(reading.allowed.seconds or None)
        try:
            socket.send_fds(line, [json.dumps(reading.bounds).encode()], [asked.fileno(), said.fileno()])
            told = line.recv(document_workers.MESSAGE)
        except ConnectionError:
            told = b""
        if not told:  # it is gone, and what it forked
            self._end()
        return int(told or 1)

    def _start(self) -> socket.socket:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._forks = subprocess.Popen(python_module(document_workers.__name__), stdin=theirs.fileno(),
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                           env=without_secrets(os.environ))
        return self._line

    def _end(self) -> None:
        if self._line:
            self._line.close()
        if self._forks:
            self._forks.kill()
            self._forks.wait()
        self._line = self._forks = None


@dataclass(frozen=True, slots=True)
class Reading:
    """A process that reads one file: how it is started, asked and understood."""

    name: str
    content: bytes
    allowed: Allowed
    limits: Limits = ORDINARY

    @property
    def bounds(self) -> tuple[int, int]:
        """Seconds and bytes, as the process is told them."""
        return math.ceil(self.allowed.seconds) + _MORE_S if self.allowed.seconds else 0, self.allowed.memory

    @property
    def command(self) -> list[str]:
        return python_module(document_worker.__name__, *map(str, self.bounds))

    @contextmanager
    def files(self) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """Its standard input and output, in memory; ``ask`` is to write the first."""
        with open(os.memfd_create("document"), "w+b") as asked, open(os.memfd_create("text"), "w+b") as said:
            yield asked, said

    def ask(self, asked: IO[bytes]) -> None:
        asked.write(json.dumps([self.name, asdict(self.limits)]).encode() + b"\n")
        asked.write(self.content)
        asked.seek(0)  # for the process as well: it has the same file

    def document(self, said: IO[bytes], code: int) -> Document:
        """Once it has ended. Raises DocumentError."""
        said.seek(0)
        answer = said.read() if code == 0 else b""
        try:
            if answer.startswith(document_worker.WHY):
                why = answer[1:].decode("utf-8", "surrogatepass").removeprefix(f"{self.name}: ")
                raise DocumentError(f"{self.name}: {one_line(why[:_SAID])}")
            return _understood(self.name, answer)
        except (ValueError, KeyError, TypeError):  # half an answer, or that of a process which is not ours any more
            raise self._failed() from None

    def too_slow(self) -> DocumentError:
        told = f"{self.name}: no text within {self.allowed.seconds:g} s ({self.allowed.said})"
        return DocumentError(f"{told}; {self.allowed.remedy}")

    def _failed(self) -> DocumentError:
        told = f"{self.name}: its parser failed, perhaps beyond its {self.allowed.memory // 2**20} MiB of memory"
        return DocumentError(f"{told}; {self.allowed.remedy}")


def _understood(name: str, answer: bytes) -> Document:
    """Raises ValueError, KeyError and TypeError."""
    if not answer.startswith(document_worker.TEXT):
        raise ValueError("no answer")
    text, _, rest = answer[1:].partition(document_worker.BEHIND)
    told, _, offsets = rest.partition(b"\n")
    head = bounded_json.loads(told)
    starts = array("Q")
    starts.frombytes(offsets)
    return Document(name, text.decode(), Unit(head["unit"]), starts, one_line(str(head["note"])[:_SAID]))
