"""Uploaded documents, in memory, for as long as the server runs.

They are texts: an upload is parsed when it comes (``document_texts``), so that a bad one is refused then.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from .request_error import RequestError


@dataclass(frozen=True, slots=True)
class StoredFile:
    name: str
    purpose: str
    size: int
    content: str
    id: str = field(default_factory=lambda: f"file-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def to_object(self) -> dict[str, Any]:
        """As OpenAI's clients read it."""
        return {
            "id": self.id, "object": "file", "bytes": self.size, "created_at": self.created, "filename": self.name,
            "purpose": self.purpose, "status": "processed",
        }


class Files:
    def __init__(self) -> None:
        self._files: dict[str, StoredFile] = {}

    def add(self, name: str, purpose: str, content: bytes, text: str) -> StoredFile:
        file = StoredFile(name, purpose, len(content), text)
        self._files[file.id] = file
        return file

    def get(self, id: str) -> StoredFile:
        """Raises RequestError."""
        if id not in self._files:
            raise RequestError(404, f"no file {id!r:.80}; they last as long as the server", code="file_not_found")
        return self._files[id]

    def text(self, id: str) -> str:
        return self.get(id).content

    def remove(self, id: str) -> dict[str, Any]:
        del self._files[self.get(id).id]
        return {"id": id, "object": "file", "deleted": True}

    def all(self) -> list[StoredFile]:
        return list(self._files.values())
