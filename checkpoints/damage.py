"""The error of a checkpoint that is not as it was written; alone, so that it costs no import of torch."""

from __future__ import annotations

from pathlib import Path

from ..system.errors import MemAgentError


class DamagedCheckpoint(MemAgentError):
    """A file of a checkpoint cannot be read: the message names the folder and the cause."""


def damaged(folder: str | Path, file: str, problem: str) -> DamagedCheckpoint:
    return DamagedCheckpoint(f"{folder}: the checkpoint is damaged: {file}: {problem}")
