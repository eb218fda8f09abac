"""Files and folders that a question is asked about, as one text that remembers where everything came from.

::

    read_documents(["notes/", "paper.pdf"])

    notes/a.txt          heading of the file, where there are several
    Ann lives in ...     its text
                         a blank line
    notes/b.html
    ...

    documents.places(0, 40) -> notes/a.txt, lines 1-2

A folder is read whole, files in the order of their paths, numbers in names as numbers (``part 2`` before ``part
10``). What is hidden, a link or no document there is skipped, and ``skipped`` says so; of what is named itself, the
first that cannot be read is an error. ``-`` is standard input. What is no plain text is parsed by processes with
limits (``document_process``).
"""

from __future__ import annotations

import os
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..system.whole_text import whole
from .document_formats import ORDINARY, Document, DocumentError, Limits, Unit
from .document_process import BoundedReader

_BETWEEN = "\n\n"


@dataclass(frozen=True, slots=True)
class Place:
    """Where people find it: lines, pages or paragraphs ``first`` to ``last`` of a file."""

    document: str
    unit: Unit
    first: int
    last: int

    def __str__(self) -> str:
        numbers = f"{self.unit} {self.first}" if self.first == self.last else f"{self.unit}s {self.first}-{self.last}"
        return f"{self.document}, {numbers}"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A part of a folder that was not read."""

    name: str
    reason: str


@dataclass(frozen=True)
class Documents:
    """What was read, in order; ``text`` is all of it."""

    documents: tuple[Document, ...]
    skipped: tuple[Skipped, ...] = ()
    text: str = field(init=False, repr=False)
    _starts: tuple[int, ...] = field(init=False, repr=False)
    """Where the text of each document begins in ``text``, behind its heading."""

    def __post_init__(self) -> None:
        pieces, starts, at = [], [], 0
        for document in self.documents:
            heading = f"{whole(document.name)}\n" if len(self.documents) > 1 else ""
            starts.append(at + len(heading))
            pieces.append(heading + document.text)
            at += len(pieces[-1]) + len(_BETWEEN)
        object.__setattr__(self, "text", _BETWEEN.join(pieces))
        object.__setattr__(self, "_starts", tuple(starts))

    def places(self, start: int, end: int) -> tuple[Place, ...]:
        """Where characters ``start`` up to ``end`` of the text came from, one for each file they touch."""
        found = []
        for number in range(max(0, bisect_right(self._starts, start) - 1), bisect_left(self._starts, end)):
            at, document = self._starts[number], self.documents[number]
            first, last = max(start, at), min(end, at + len(document.text))
            if first < last:
                found.append(Place(document.name, document.unit, *document.units(first - at, last - at)))
        return tuple(found)


def read_documents(paths: Sequence[str], limits: Limits = ORDINARY) -> Documents:
    """All documents that ``paths`` name, each once.

    Raises:
        DocumentError: one of them is no document, or all together give none or too much.
        OSError: one of them cannot be opened.
    """
    documents: dict[Path, Document] = {}
    skipped: list[Skipped] = []
    characters = 0
    with BoundedReader() as reader:
        for path in paths:
            if path != "-" and Path(path).is_dir():
                found = _folder(Path(path), limits, reader, documents, skipped)
            else:
                found = iter([(Path(path).resolve(), _file(path, limits, reader))])
            for real, document in found:
                documents.setdefault(real, document)
                characters += len(document.text)
                _check_sum(len(documents), characters, limits)
    if not documents:
        raise DocumentError(f"{', '.join(paths)}: no documents{_why(skipped)}")
    return Documents(tuple(documents.values()), tuple(skipped))


def _file(path: str, limits: Limits, reader: BoundedReader) -> Document:
    """A file that is named itself; a pipe is one as well."""
    if path == "-":
        return reader.read("standard input", sys.stdin.buffer.read(limits.file_bytes + 1), limits)
    with open(path, "rb") as file:
        return reader.read(path, file.read(limits.file_bytes + 1), limits)


def _folder(
    folder: Path, limits: Limits, reader: BoundedReader, known: dict[Path, Document], skipped: list[Skipped]
) -> Iterator[tuple[Path, Document]]:
    for path in sorted(_files(folder, skipped), key=lambda path: [_natural(part) for part in path.parts]):
        real = path.resolve()
        if real in known:
            continue
        try:
            yield real, _file(str(path), limits, reader)
        except DocumentError as error:
            skipped.append(Skipped(str(path), str(error).removeprefix(f"{path}: ")))
        except OSError as error:
            skipped.append(Skipped(str(path), str(error.strerror)))


def _files(folder: Path, skipped: list[Skipped]) -> Iterator[Path]:
    """The regular files below ``folder``."""

    def unreadable(error: OSError) -> None:
        skipped.append(Skipped(str(error.filename), str(error.strerror)))

    for at, folders, names in os.walk(folder, onerror=unreadable):
        reasons = {name: _not_read(Path(at, name), folder=False) for name in names}
        reasons |= {name: _not_read(Path(at, name), folder=True) for name in folders}
        skipped += [Skipped(str(Path(at, name)), reason) for name, reason in sorted(reasons.items()) if reason]
        folders[:] = [name for name in folders if not reasons[name]]
        yield from (Path(at, name) for name in names if not reasons[name])


def _not_read(path: Path, folder: bool) -> str:
    """Why this part of a folder is left out; empty where it is not."""
    if path.name.startswith("."):
        return "hidden"
    if path.is_symlink():
        return "a link; name its target"
    return "" if folder or path.is_file() else "no regular file"


def _natural(name: str) -> list[str | int]:
    """Text and numbers in turn, so that numbers are compared as such."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def _check_sum(files: int, characters: int, limits: Limits) -> None:
    if files > limits.files:
        raise DocumentError(f"more than {limits.files:,} files; ask about a part of them")
    if characters > limits.characters:
        raise DocumentError(f"more than {limits.characters:,} characters of text; ask about a part of it")


def _why(skipped: Sequence[Skipped]) -> str:
    return f"; {skipped[0].name} was skipped: {skipped[0].reason}" if skipped else ""
