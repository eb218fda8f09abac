"""The sessions of a toolkit's folder: one line of JSON each, only ever appended to.

    {"id": "s1", "date": "2023/05/20", "turns": [["user", "I moved to Lyon."], ["assistant", "How is it?"]]}

A line is on disk when ``add`` returns. What a kill leaves of a line is cut off when the log is opened again, by
the one process that may have it open.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import orjson

from ..sessions.records import Session, Turn
from ..system.errors import MemAgentError
from ..system.files import append_whole, folder_lock, naming


class LogError(MemAgentError):
    """The log is damaged; the message names it and the remedy."""


class SessionLog:
    """``sessions`` in the order in which they were added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with ExitStack() as held:
            busy = "another process has it open; close that, or use another folder"
            held.enter_context(folder_lock(path.parent, busy=busy, name=".sessions.lock"))
            self.sessions: list[Session] = list(self._read())
            self._file = held.enter_context(path.open("ab", buffering=0))
            self._held = held.pop_all()

    def add(self, session: Session) -> None:
        turns = [[turn.role, turn.content] for turn in session.turns]
        append_whole(self._file, orjson.dumps({"id": session.id, "date": session.date, "turns": turns}) + b"\n")
        with naming(self._path):
            os.fsync(self._file.fileno())
        self.sessions.append(session)

    def close(self) -> None:
        self._held.close()

    def _read(self) -> Iterator[Session]:
        """All whole lines; what a kill left of the last one is cut off."""
        content = self._path.read_bytes() if self._path.exists() else b""
        whole = content.rfind(b"\n") + 1
        for number, line in enumerate(content[:whole].splitlines(), 1):
            try:
                entry = orjson.loads(line)
                yield Session(entry["id"], tuple(Turn(role, text) for role, text in entry["turns"]), entry["date"])
            except (LookupError, TypeError, ValueError):
                raise LogError(f"{self._path}: line {number} is no session; remove that line") from None
        if whole < len(content):
            os.truncate(self._path, whole)
