"""A process that forks another for each document: ``python -m mem_agent.data.document_workers``.

Starting Python and importing the parsers takes longer than most documents. So both are done once for a folder of
documents, and each is read as by ``document_worker``, in a process with limits of its own that ends with it: what a
document makes of its parser is gone before the next one. This process itself reads nothing of them::

    stdin    a socket; for each document [SECONDS, BYTES] in JSON with two files, those that the other would have as
             its standard input and output; its exit code comes back

It ends with whoever asks, and its children with it.
"""

from __future__ import annotations

import json
import os
import socket
from importlib import import_module

from . import document_worker

MESSAGE = 1024
"""Bytes, at most."""
_PARSERS = (
    "chardetng_py", "inscriptis.css_profiles", "inscriptis.html_engine", "inscriptis.model.config", "lxml.html",
    "pypdf",
)  # fmt: skip


def main() -> None:
    document_worker.end_with_parent()
    line, documents = socket.socket(fileno=0), 0
    while True:
        asked, files, _, _ = socket.recv_fds(line, MESSAGE, 2)
        if not asked:
            return
        documents += 1
        if documents == 2:  # a page alone needs no parser of PDFs
            for parser in _PARSERS:
                import_module(parser)
        code = _read(*files, *json.loads(asked))
        line.send(b"%d" % code)


def _read(asked: int, said: int, seconds: int, memory: int) -> int:
    parent = os.getpid()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.dup2(asked, 0)  # in the place of the socket
            os.dup2(said, 1)
            os.closerange(3, max(asked, said) + 1)
            document_worker.end_with_parent()
            if os.getppid() == parent:  # else it ended before that
                document_worker.main(seconds, memory)
                code = 0
        finally:
            os._exit(code)
    os.close(asked)
    os.close(said)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()
