"""The traces of an evaluation on disk, appended as its rows are: ``RESULTS/trajectories/<length>.jsonl``.

Invariants:
- a trajectory is there once: what will be asked again is taken out before the first answer is written;
- each length has an equal share of the bound, and keeps nothing more once that is used up, so the longest documents,
  which are read first, leave the others theirs; files of lengths that are not asked again count;
- the files never hold more than the bound.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from io import FileIO
from pathlib import Path

from ..system.files import append_whole, replacing
from .read_traces import FOLDER, kept_files, read_traces
from .trace import Trace, TraceDocument, line_of


class EvaluationFiles:
    """Appends to the files of one result folder."""

    def __init__(self, results: Path, asked: Mapping[str, Collection[str]], bound: int) -> None:
        """
        Args:
            asked: the ids of the trajectories that will be answered, by length; of other lengths nothing is written.
            bound: bytes of all files.
        """
        self._results = results
        self._asked = asked
        self._bound = bound
        others = sum(size for name, size in self._sizes().items() if name not in asked)
        self._share = max(0, bound - others) // max(1, len(asked))
        self._files: dict[str, FileIO] = {}
        self._documents: dict[str, set[str]] = {}
        self._full: set[str] = set()

    def has_room(self, length: str) -> bool:
        return length not in self._full

    def write(self, document: TraceDocument | None, trace: Trace) -> bool:
        """Append a trajectory, before it its document where that is new; False where the share has no room for it.

        Raises:
            OSError: the disk is full, or the folder cannot be written; of the trajectory nothing is written then.
        """
        length = trace.length or ""
        file = self._files.get(length) or self._opened(length)
        new = document is not None and document.id not in self._documents[length]
        content = (line_of(document) if document is not None and new else b"") + line_of(trace)
        end = file.seek(0, 2)
        if end + len(content) > self._share or sum(self._sizes().values()) + len(content) > self._bound:
            self._full.add(length)
            return False
        append_whole(file, content)
        if document is not None and new:
            self._documents[length].add(document.id)
        return True

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _sizes(self) -> dict[str, int]:
        """Bytes of the files that are there, by length."""
        return {path.stem: path.stat().st_size for path in kept_files(self._results)}

    def _opened(self, length: str) -> FileIO:
        path = self._results / FOLDER / f"{length}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._documents[length] = _without(path, set(self._asked[length])) if path.is_file() else set()
        self._files[length] = path.open("ab", buffering=0)
        return self._files[length]


def _without(path: Path, gone: set[str]) -> set[str]:
    """Take trajectories out of a file, and half a line at its end; the documents that stay."""
    documents: set[str] = set()
    with replacing(path) as file:
        for record in read_traces(path):
            if isinstance(record, Trace) and record.id in gone:
                continue
            if isinstance(record, TraceDocument):
                documents.add(record.id)
            file.write(line_of(record))
    return documents
