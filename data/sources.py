"""Streams rows out of data files and Hugging Face datasets, a few at a time.

Every source yields ``SourceRow``: a dict, or the reason why this row could not be read. Anything that makes the rest
of the source unreadable is a SourceError with one line of text.

Invariant: memory holds a few rows, never a file. A parquet file needs more, since a reader must unpack a whole data
page and the writer chose its size: pyarrow and pandas put 1024 long texts into one page, and reading takes about
three such pages (0.5 GB at 130 KB a text, 1 GB at 300 KB, 2.3 GB at 1 MB) however large file and row groups are.
Files of longer texts are best written with ``write_batch_size=16``: 0.2 GB at 1 MB.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import orjson

from ..system.errors import MemAgentError

BATCH_ROWS = 16
BUFFER_BYTES = 1 << 20
_LONGEST_VALUE = 1 << 29  # characters; stops a missing quote from pulling the whole file into memory
_SUFFIXES = (".parquet", ".jsonl", ".json")
_SPACE = re.compile(r"\s*")


class SourceError(MemAgentError):
    """A source that cannot be read, or not further; one line."""


@dataclass(frozen=True, slots=True)
class SourceRow:
    where: str
    """``row 3`` or ``line 3``, counted from 1."""
    fields: dict[str, Any] | None
    problem: str = ""
    """Why ``fields`` is None."""


@dataclass(frozen=True, slots=True)
class Source:
    rows: Iterator[SourceRow]
    total: int | None = None
    """Number of rows, where the format tells."""
    columns: tuple[str, ...] | None = None
    """Columns of every row, where the format fixes them."""


def open_file(path: Path, wanted: Collection[str] | None = None) -> Source:
    """The rows of a .parquet, .jsonl or .json file (a list, or one object per line). Raises SourceError.

    ``wanted``: the columns worth reading, where the format lets others be skipped.
    """
    if not path.is_file():
        raise SourceError(f"{path}: no such file")
    match path.suffix:
        case ".parquet":
            return _open_parquet(path, wanted)
        case ".jsonl" | ".json":
            return Source(_guard(path, _list_rows if _first_character(path) == "[" else _line_rows))
        case suffix:
            raise SourceError(f"{path}: unknown kind of file {suffix!r}; allowed: {', '.join(_SUFFIXES)}")


def _first_character(path: Path) -> str:
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as text:
            return text.read(4096).lstrip()[:1]
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({first_line(error)})") from None


def _guard(path: Path, read: Callable[[Path], Iterator[SourceRow]]) -> Iterator[SourceRow]:
    try:
        yield from read(path)
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: cannot be read ({first_line(error)})") from None


def first_line(error: BaseException) -> str:
    """The message of an error, or its type when it has none, cut to its first line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _row(where: str, value: Any) -> SourceRow:
    if isinstance(value, dict):
        return SourceRow(where, value)
    return SourceRow(where, None, f"expected an object, found {type(value).__name__}")


# --- parquet ---------------------------------------------------------------------------------------------------------
def _open_parquet(path: Path, wanted: Collection[str] | None) -> Source:
    import pyarrow.parquet as pq  # here: the other sources work without it

    try:
        with pq.ParquetFile(path) as parquet:
            total, columns = parquet.metadata.num_rows, tuple(parquet.schema_arrow.names)
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: not a readable parquet file ({first_line(error)})") from None
    return Source(_guard(path, lambda path: _numbered(_parquet_rows(path, wanted))), total, columns)


def _parquet_rows(file: Path | BinaryIO, wanted: Collection[str] | None) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    # Buffered streams read column chunks piecewise; without them a row group is read whole before its first row.
    with pq.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER_BYTES) as parquet:
        columns = [name for name in parquet.schema_arrow.names if wanted is None or name in wanted]
        for batch in parquet.iter_batches(batch_size=BATCH_ROWS, columns=columns, use_threads=False):
            yield from batch.to_pylist()


def _numbered(rows: Iterable[dict[str, Any]]) -> Iterator[SourceRow]:
    return (SourceRow(f"row {number}", fields) for number, fields in enumerate(rows, start=1))


# --- JSON ------------------------------------------------------------------------------------------------------------
def _line_rows(path: Path) -> Iterator[SourceRow]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                yield SourceRow(f"line {number}", None, f"not valid JSON ({first_line(error)})")
            else:
                yield _row(f"line {number}", value)


def _list_rows(path: Path) -> Iterator[SourceRow]:
    """The elements of one JSON list, decoded one by one. ValueError when the text breaks off or is no list."""
    with path.open(encoding="utf-8-sig") as file:
        text, number = _SlidingText(file), 0
        text.expect("[", "at the start")
        while not (number == 0 and text.peek() == "]"):
            number += 1
            yield _row(f"row {number}", text.value(f"in row {number}"))
            if text.peek() == "]":
                break
            text.expect(",", f"behind row {number}")
        text.expect("]", f"behind row {number}")
        if text.peek():
            raise ValueError(f"text after the end of the list, behind row {number}")


class _SlidingText:
    """A window on a long JSON text.

    A window that ends inside a value is at least doubled and the value decoded again, so all decoding together costs
    a small multiple of the file.
    """

    def __init__(self, file: TextIO) -> None:
        self._file, self._text, self._at = file, "", 0
        self._decoder = json.JSONDecoder()

    def peek(self) -> str:
        """The next character that is not white space; empty at the end of the file."""
        while True:
            space = _SPACE.match(self._text, self._at)
            assert space is not None
            self._at = space.end()
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def expect(self, char: str, where: str) -> None:
        found = self.peek()
        if found != char:
            raise ValueError(f"expected {char!r} {where}, found {repr(found) if found else 'the end of the file'}")
        self._at += 1

    def value(self, where: str) -> Any:
        self.peek()
        while True:
            failure = ""
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
                cut = end == len(self._text)
            except json.JSONDecodeError as error:
                failure, cut = error.msg, _may_be_cut(error, len(self._text))
            if cut and self._more():
                continue
            if failure:
                raise ValueError(f"not valid JSON {where}: {failure}")
            self._at = end
            return value

    def _more(self) -> bool:
        kept = len(self._text) - self._at
        more = self._file.read(max(BUFFER_BYTES, kept)) if kept < _LONGEST_VALUE else ""
        if more:
            self._text, self._at = self._text[self._at :] + more, 0
        return bool(more)


def _may_be_cut(error: json.JSONDecodeError, length: int) -> bool:
    """Whether more text could mend it: it happened in an open string, or at the end (literals, escapes are short)."""
    return error.msg.startswith("Unterminated string") or error.pos >= length - 16


# --- Hugging Face ----------------------------------------------------------------------------------------------------
def open_dataset(
    name: str, split: str, revision: str | None = None, wanted: Collection[str] | None = None
) -> Source:
    """The rows of one split of a Hugging Face dataset, streamed. Raises SourceError.

    Repositories that mix formats, such as parquet for training beside JSON for evaluation, cannot be loaded as a
    whole; of those, the files with the split's name as a word of their own name are read.
    """
    from datasets.packaged_modules.parquet.parquet import ParquetConfig  # slow to import; local files do without

    try:
        builder = _dataset_builder(name, split, revision)
        if isinstance(builder.config, ParquetConfig):
            files = {str(key): list(paths) for key, paths in (builder.config.data_files or {}).items()}
            if split not in files:
                raise SourceError(f"it has {', '.join(files) or 'no data'}")
            # Not through as_streaming_dataset: it took four times the memory on files with large row groups.
            rows = _dataset_rows(name, _remote_parquet_rows(files[split], wanted))
            return Source(rows, columns=_remote_columns(files[split][0]))
        dataset = builder.as_streaming_dataset(split=split)
    except Exception as error:  # the hub client raises its own, HTTP, file and value errors alike
        raise SourceError(f"{name}: split {split!r} cannot be loaded ({first_line(error)})") from None
    return Source(_dataset_rows(name, dataset))


def _dataset_builder(name: str, split: str, revision: str | None) -> Any:
    from datasets import load_dataset_builder

    try:
        return load_dataset_builder(name, revision=revision)
    except ValueError as error:
        if "same data file format" not in str(error):
            raise
    for suffix in _SUFFIXES:
        for pattern in (f"**/*[-_.]{split}[-_.]*", f"**/{split}[-_.]*"):
            files = pattern + suffix.removeprefix(".")
            try:
                return load_dataset_builder(name, revision=revision, data_files={split: files})
            except FileNotFoundError:
                continue
    raise SourceError(f"no file is named after the split {split!r}")


def _remote_columns(file: str) -> tuple[str, ...]:
    import fsspec
    import pyarrow.parquet as pq

    with fsspec.open(file, "rb") as opened:
        return tuple(pq.read_schema(opened).names)


def _remote_parquet_rows(files: list[str], wanted: Collection[str] | None) -> Iterator[dict[str, Any]]:
    import fsspec

    for file in files:
        with fsspec.open(file, "rb") as opened:
            yield from _parquet_rows(opened, wanted)


def _dataset_rows(name: str, rows: Iterable[dict[str, Any]]) -> Iterator[SourceRow]:
    read = 0
    try:
        for row in _numbered(rows):
            yield row
            read += 1
    except Exception as error:  # network, decoding and casting errors of any library underneath
        raise SourceError(f"{name}: reading stopped behind row {read} ({first_line(error)})") from None
