"""A file that is either the old one or the new one, never half of either."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

DRAFTS = ".*.tmp"
"""What a killed process may leave in a folder; whoever holds the folder may remove it."""


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path``, on disk, when the block ends well, and vanishes otherwise."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace ``path``'s content by one rename."""
    with replacing(path) as file:
        file.write(content)
