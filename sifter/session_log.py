"""The sessions of a toolkit's folder: one line of JSON each, only ever appended to.

    {"id": "s1", "date": "2023/05/20", "turns": [["user", "I moved to Lyon."], ["assistant", "How is it?"]]}

A line is on disk when ``add`` returns. What a kill leaves of a line is cut off when the log is opened again, by
the one process that may have it open; a last line that is whole but for its end gets that, and nothing else is cut.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import orjson

from ..sessions.records import Session, Turn
from ..system import bounded_json
from ..system.atomic_file import NotAFile, append_whole, appending, full_disk_named
from ..system.errors import MemAgentError
from ..system.file_lock import lock

_BEGIN = b'{"id":'


class LogError(MemAgentError):
    """The log is in use or damaged; the message names it and the remedy."""


class SessionLog:
    """``sessions`` in the order in which they were added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = appending(path)
        except NotAFile:
            raise
        except OSError as error:
            raise LogError(f"{path}: cannot be written ({error.strerror}); use another folder") from None
        try:
            lock(self._file, LogError(f"{path}: another process has it open; close that, or use another folder"))
            self.sessions: list[Session] = list(self._read())
        except BaseException:
            self._file.close()
            raise

    def add(self, session: Session) -> None:
        turns = [[turn.role, turn.content] for turn in session.turns]
        line = orjson.dumps({"id": session.id, "date": session.date, "turns": turns}) + b"\n"
        end = os.fstat(self._file.fileno()).st_size
        try:
            with full_disk_named(self._path):
                if self._file.write(line) != len(line):
                    raise OSError(f"{self._path}: the disk is full")
                os.fsync(self._file.fileno())
        except BaseException:
            self._file.truncate(end)
            raise
        self.sessions.append(session)

    def close(self) -> None:
        self._file.close()

    def _read(self) -> Iterator[Session]:
        content = self._path.read_bytes()
        whole = content.rfind(b"\n") + 1
        lines = content[:whole].splitlines()
        yield from (self._session(line, number) for number, line in enumerate(lines, 1))
        last = content[whole:]
        if _is_torn(last):
            self._file.truncate(whole)
        else:
            yield self._session(last, len(lines) + 1)
            with full_disk_named(self._path):
                append_whole(self._file, b"\n")

    def _session(self, line: bytes, number: int) -> Session:
        try:
            entry = bounded_json.loads(line)
            turns = tuple(Turn(str(role), str(text)) for role, text in entry["turns"])
            return Session(str(entry["id"]), turns, str(entry["date"]))
        except (LookupError, TypeError, ValueError):
            raise LogError(f"{self._path}: line {number} is no session; remove that line") from None


def _is_torn(line: bytes) -> bool:
    """Whether it can be the begin of one that was being added, of which a disk may have kept the length alone."""
    begin = line.rstrip(b"\0")
    if not begin.startswith(_BEGIN):
        return _BEGIN.startswith(begin)
    try:
        bounded_json.loads(begin)
    except ValueError as error:
        return not isinstance(error, bounded_json.TooDeep)
    return False
