"""How much the documents of one request may have together, text and work, which its length does not say.

A conversation names uploaded files as often as it likes, and a Word file unpacks to far more than was sent. So texts
are counted as they are found, before any two of them are joined::

    {"documents": [{"file_id": "file-1"}, {"file_id": "file-1"}, ...]}      20 bytes each, for a megabyte each

Files that a process of its own has to parse are counted before they are: one of 30 bytes takes it a tenth of a second.

Invariant: a text that could be read is never refused here. Documents have fewer characters than the allowed tokens
could have, and no more than all files and a body have bytes, each named once.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..config import Config
from .request_error import RequestError

TOKEN_CHARACTERS = 64
"""No text of so many characters a token is written by people."""

_PARSED = 256
"""Files inside a request that a process has to parse. A person attaches some; more can be uploaded one by one."""


def most_characters(config: Config) -> int:
    held = (config.serve_files_mb + config.serve_body_mb) * 2**20
    readable = config.serve_document_tokens * TOKEN_CHARACTERS
    return min(held, readable) if readable else held


@dataclass(slots=True)
class DocumentRoom:
    """Of one request, all prompts of it together."""

    most: int
    """Characters."""
    taken: int = 0
    parsed: int = 0
    """Files."""

    def take_parsed(self, where: str) -> None:
        """Raises RequestError where one more may not be parsed."""
        self.parsed += 1
        if self.parsed > _PARSED:
            told = f"{where}: more than {_PARSED} files that have to be parsed; upload them (/v1/files), or send texts"
            raise RequestError(400, told, param=where)

    def take(self, text: str) -> str:
        """``text``, counted. Raises RequestError where no room is left for it."""
        self.taken += len(text)
        if self.taken > self.most:
            told = f"documents of more than {self.most} characters together"
            raise RequestError(413, f"{told} (SERVE_DOCUMENT_TOKENS, SERVE_FILES_MB, SERVE_BODY_MB); send fewer")
        return text
