"""A process of its own for one document: ``python -m mem_agent.data.document_worker SECONDS BYTES``.

Parsers of other people's formats can take minutes and gigabytes for a file that was made for that, and hold the
interpreter meanwhile. Who reads files of strangers lets them do so here, where they can be stopped::

    stdin    "report.pdf"<line break><the file's bytes>         the name is JSON
    stdout   +<its text>     or     -<one line: why it has none>

Nothing there, or an exit code: it was stopped, or ran into one of its limits.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys

from .document_formats import DocumentError, read_document

TEXT, WHY = b"+", b"-"


def main(seconds: int, memory: int) -> None:
    """``seconds`` of CPU, after which the system ends it even if nobody else does; 0: no limit. ``memory``: addresses
    that it may take."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    if seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    os.nice(5)  # those who wait for an answer go first
    logging.disable()  # pypdf tells of every oddity of a file
    name = json.loads(sys.stdin.buffer.readline())
    try:
        answer = TEXT + read_document(name, sys.stdin.buffer.read()).text.encode()
    except DocumentError as error:
        answer = WHY + str(error).encode("utf-8", "replace")
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
