"""Uploaded documents, in memory, for as long as the server runs: a bound holds for all of them together.

They are texts: what an upload is (``document_texts``) is found out when it comes, so that a bad one is refused then.
"""

from __future__ import annotations

import sys
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from .request_error import RequestError

_EACH = 1024
"""Bytes that a file takes besides its texts, rather more than less."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    name: str
    purpose: str
    size: int
    content: str
    id: str = field(default_factory=lambda: f"file-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def held(self) -> int:
        """Bytes of memory; an archive unpacks to far more than was sent."""
        return _EACH + sum(map(sys.getsizeof, (self.name, self.purpose, self.content)))

    def to_object(self) -> dict[str, Any]:
        """As OpenAI's clients read it."""
        return {
            "id": self.id, "object": "file", "bytes": self.size, "created_at": self.created, "filename": self.name,
            "purpose": self.purpose, "status": "processed",
        }


class Files:
    """``_held`` is the sum of what the files hold: asked for at each upload, of up to as many as there is room for."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._files: dict[str, StoredFile] = {}
        self._held = 0

    def add(self, name: str, purpose: str, content: bytes, text: str) -> StoredFile:
        """Raises RequestError where there is no room."""
        file = StoredFile(name, purpose, len(content), text)
        if self._held + file.held > self._most:
            raise RequestError(413, f"{file.held} bytes of text do not fit: files hold {self._held} of {self._most} "
                                    "(SERVE_FILES_MB); delete some")
        self._files[file.id] = file
        self._held += file.held
        return file

    def get(self, id: str) -> StoredFile:
        """Raises RequestError."""
        if id not in self._files:
            raise RequestError(404, f"no file {id!r:.80}; they last as long as the server", code="file_not_found")
        return self._files[id]

    def text(self, id: str) -> str:
        return self.get(id).content

    def remove(self, id: str) -> dict[str, Any]:
        self._held -= self.get(id).held
        del self._files[id]
        return {"id": id, "object": "file", "deleted": True}

    def all(self) -> list[StoredFile]:
        return list(self._files.values())
