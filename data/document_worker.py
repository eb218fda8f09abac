"""A process of its own for one document: ``python -m mem_agent.data.document_worker SECONDS BYTES``.

Parsers of other people's formats can take minutes and gigabytes for a file that was made for that, and hold the
interpreter meanwhile. Who reads files of strangers lets them do so here, where they can be stopped
(``document_process``)::

    stdin    ["report.pdf", {"characters": ...}]<line break><the file's bytes>       name and limits are JSON
    stdout   +<its text><NUL>{"unit": "page", "note": ""}<line break><offsets of its pages, 8 bytes each>
             or     -<one line: why it has none>

Nothing there, or an exit code: it was stopped, or ran into one of its limits.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import resource
import signal
import sys
from array import array

from .document_formats import Document, DocumentError, Limits, read_document

TEXT, WHY, BEHIND = b"+", b"-", b"\0"
"""No document's text holds the last one."""
_PR_SET_PDEATHSIG = 1


def main(seconds: int, memory: int) -> None:
    """``seconds`` of CPU, after which the system ends it even if nobody else does; 0: no limit. ``memory``: addresses
    that it may take."""
    end_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (memory, memory))  # an answer of ours was there before it is written
    if seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    os.nice(5)  # those who wait for an answer go first
    logging.disable()  # pypdf tells of every oddity of a file
    name, limits = json.loads(sys.stdin.buffer.readline())
    try:
        _answer(read_document(name, sys.stdin.buffer.read(), Limits(**limits)))
    except DocumentError as error:
        sys.stdout.buffer.write(WHY + str(error).encode("utf-8", "surrogatepass"))
    sys.stdout.flush()


def end_with_parent() -> None:
    """Whoever waited may be killed, and cannot end it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _answer(document: Document) -> None:
    head = json.dumps({"unit": document.unit, "note": document.note}).encode()
    for part in (TEXT, document.text.encode(), BEHIND, head, b"\n", array("Q", document.starts).tobytes()):
        sys.stdout.buffer.write(part)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
