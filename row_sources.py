"""Streams rows out of data files and Hugging Face datasets, a few at a time.

Every source yields ``SourceRow``: a dict, or the reason why this row could not be read. Anything that makes the rest
of the source unreadable is a SourceError with one line of text.

Invariant: memory holds a few rows, never a file. A parquet file needs more, since a reader must unpack a whole data
page and the writer chose its size: pyarrow and pandas put 1024 long texts into one page, and reading takes about
three such pages (0.5 GB at 130 KB a text, 1 GB at 300 KB, 2.5 GB at 1 MB) however large file and row groups are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import orjson

BATCH_ROWS = 16
BUFFER_BYTES = 1 << 20
_LONGEST_VALUE = 1 << 29  # characters; stops a missing quote from pulling the whole file into memory
_SUFFIXES = (".parquet", ".jsonl", ".json")
_SPACE = re.compile(r"\s*")


class SourceError(Exception):
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


def open_file(path: Path) -> Source:
    """The rows of a .parquet, .jsonl or .json file (a list, or one object per line). Raises SourceError."""
    if not path.is_file():
        raise SourceError(f"{path}: no such file")
    match path.suffix:
        case ".parquet":
            return _open_parquet(path)
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


# --- parquet ----------------------------------------------------------------------------------------------------------
def _open_parquet(path: Path) -> Source:
    import pyarrow.parquet as pq  # here: the other sources work without it

    try:
        # Buffered streams read column chunks piecewise; without them a row group is read whole before its first row.
        file = pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES)
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: not a readable parquet file ({first_line(error)})") from None

    def rows(path: Path) -> Iterator[SourceRow]:
        number = 0
        with file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
                for fields in batch.to_pylist():
                    number += 1
                    yield SourceRow(f"row {number}", fields)

    return Source(_guard(path, rows), file.metadata.num_rows, tuple(file.schema_arrow.names))


# --- JSON -------------------------------------------------------------------------------------------------------------
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


# --- Hugging Face -----------------------------------------------------------------------------------------------------
def open_dataset(name: str, split: str, revision: str | None = None) -> Source:
    """The rows of one split of a Hugging Face dataset, streamed. Raises SourceError.

    Repositories that mix formats, such as parquet for training beside JSON for evaluation, cannot be loaded as a
    whole; of those, the files with the split's name as a word of their own name are read.
    """
    try:
        builder = _dataset_builder(name, split, revision)
        if hasattr(builder.config, "fragment_scan_options"):
            _limit_parquet_memory(builder.config)
        rows = builder.as_streaming_dataset(split=split)
    except Exception as error:  # the hub client raises its own, HTTP, file and value errors alike
        raise SourceError(f"{name}: split {split!r} cannot be loaded ({first_line(error)})") from None
    return Source(_dataset_rows(name, rows), columns=tuple(rows.column_names) if rows.column_names else None)


def _dataset_builder(name: str, split: str, revision: str | None) -> Any:
    from datasets import load_dataset_builder  # slow to import, and local files do without

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


def _limit_parquet_memory(config: Any) -> None:
    import pyarrow.dataset

    config.batch_size = BATCH_ROWS  # the default is a whole row group
    config.fragment_scan_options = pyarrow.dataset.ParquetFragmentScanOptions(
        use_buffered_stream=True, buffer_size=BUFFER_BYTES, pre_buffer=False
    )


def _dataset_rows(name: str, rows: Any) -> Iterator[SourceRow]:
    number = 0
    try:
        for number, fields in enumerate(rows, start=1):
            yield SourceRow(f"row {number}", fields)
    except Exception as error:  # network, decoding and casting errors of any library underneath
        raise SourceError(f"{name}: reading stopped behind row {number} ({first_line(error)})") from None
