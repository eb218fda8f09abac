"""Streams rows out of data files and Hugging Face datasets, a few at a time.

Every source yields ``SourceRow``: a dict, or the reason why this row could not be read. Anything that makes the rest
of the source unreadable is a SourceError with one line of text.

Invariant: memory holds a few rows, never a file. A parquet file needs more, since a reader must unpack a whole data
page and the writer chose its size: pyarrow and pandas put 1024 long texts into one page, and reading takes about
three such pages (0.5 GB at 130 KB a text, 1 GB at 300 KB, 2.3 GB at 1 MB) however large file and row groups are.
Files of longer texts are best written with ``write_batch_size=16``: 0.2 GB at 1 MB. A row of a JSON list takes three
times its size. Of parquet no row group is read that is far more than its part of the file (``bounded_parquet``).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from io import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from ..system.bounded_json import DEEPEST, TooDeep, loads
from ..system.bounded_parquet import TooMuchInside, batches, buffer_size
from ..system.errors import MemAgentError

BATCH_ROWS = 16
BUFFER_BYTES = 1 << 20
_UNREADABLE = (OSError, ValueError, ArithmeticError, NotImplementedError)
"""The last two are parquet's: dates outside of Python's range, and types that Arrow has not."""
_LONGEST_VALUE = 1 << 29  # bytes; stops a missing quote from pulling the whole file into memory
_LONGEST_CELL = 1 << 27  # characters of 4 bytes each; for the same
_SUFFIXES = (".parquet", ".jsonl", ".json", ".csv")
_LISTS = frozenset({"answers", "answer_aliases", "context", "paragraphs", "haystack_session_ids", "haystack_dates",
                    "answer_session_ids"})
"""Columns whose cells may hold a list. Not ``answer``: the list of numbers may be the answer itself."""
_BOM = b"\xef\xbb\xbf"
# The next bracket, and outside of inner brackets the next comma, that is in no string; or the quote of a string that
# is cut off. Possessive: what has matched is not kept for trying again, which would take memory with a text's length.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_OUTER_MARK = re.compile(rb'(?:[^"\[\]{},]++|' + _STRING + rb')*+(["\[\]{},])', re.DOTALL)
_INNER_MARK = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb')*+(["\[\]{}])', re.DOTALL)
_OPENING, _CLOSING = frozenset((b"[", b"{")), frozenset((b"]", b"}"))


class SourceError(MemAgentError):
    """A source that cannot be read, or not further; one line."""


class NotJson(ValueError):
    """A list that breaks off; says behind which element."""


@dataclass(frozen=True, slots=True)
class Broken:
    """Stands in for a value that cannot be decoded."""

    problem: str


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
    """The rows of a .parquet, .csv, .jsonl or .json file (a list, or one object per line). Raises SourceError.

    ``wanted``: the columns worth reading, where the format lets others be skipped.
    """
    if not path.is_file():
        raise SourceError(f"{path}: no such file")
    match path.suffix:
        case ".parquet":
            return _open_parquet(path, wanted)
        case ".csv":
            return _open_csv(path)
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
    except TooMuchInside as error:
        raise SourceError(str(error)) from None
    except _UNREADABLE as error:
        raise SourceError(f"{path}: cannot be read ({first_line(error)})") from None


def first_line(error: BaseException) -> str:
    """The message of an error, or its type when it has none, cut to its first line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _row(where: str, value: Any) -> SourceRow:
    if isinstance(value, Broken):
        return SourceRow(where, None, value.problem)
    if isinstance(value, dict):
        return SourceRow(where, value)
    return SourceRow(where, None, f"expected an object, found {type(value).__name__}")


# --- parquet ---------------------------------------------------------------------------------------------------------
def _open_parquet(path: Path, wanted: Collection[str] | None) -> Source:
    import pyarrow.parquet as pq  # here: the other sources work without it

    try:
        with pq.ParquetFile(path) as parquet:
            total, columns = parquet.metadata.num_rows, tuple(parquet.schema_arrow.names)
    except _UNREADABLE as error:
        raise SourceError(f"{path}: not a readable parquet file ({first_line(error)})") from None
    return Source(_guard(path, lambda path: _numbered(_parquet_rows(path, path, wanted))), total, columns)


def _parquet_rows(
    file: Path | BinaryIO, name: Path | str, wanted: Collection[str] | None
) -> Iterator[dict[str, Any] | Broken]:
    import pyarrow.parquet as pq

    piece, size = buffer_size(file) if isinstance(file, Path) else BUFFER_BYTES, None
    if not isinstance(file, Path):
        file.seek(0, SEEK_END)
        size = file.tell()
    with pq.ParquetFile(file, pre_buffer=False, buffer_size=piece) as parquet:
        columns = [name for name in parquet.schema_arrow.names if wanted is None or name in wanted]
        for batch in batches(parquet, name, BATCH_ROWS, columns, size=size):
            yield from _batch_rows(batch)


def _batch_rows(batch: Any) -> Iterator[dict[str, Any] | Broken]:
    """One by one where they cannot be had together: a date that Python has no name for costs its own row alone."""
    try:
        yield from batch.to_pylist()
    except (ArithmeticError, ValueError):
        for at in range(len(batch)):
            try:
                row = batch.slice(at, 1).to_pylist()[0]
            except (ArithmeticError, ValueError) as error:
                row = Broken(f"cannot be read ({first_line(error)})")
            yield row


def _numbered(rows: Iterable[Any]) -> Iterator[SourceRow]:
    return (_row(f"row {number}", row) for number, row in enumerate(rows, start=1))


# --- JSON ------------------------------------------------------------------------------------------------------------
def _line_rows(path: Path) -> Iterator[SourceRow]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1:
                line = line.removeprefix(_BOM)
            if line.strip():
                yield _row(f"line {number}", _decoded(line))


def _list_rows(path: Path) -> Iterator[SourceRow]:
    with path.open("rb") as file:
        for number, value in enumerate(json_list(file), start=1):
            yield _row(f"row {number}", value)


def _decoded(content: bytes) -> Any:
    try:
        return loads(content)
    except TooDeep as error:
        return Broken(str(error))
    except ValueError as error:
        return Broken(f"not valid JSON ({first_line(error)})")


def json_list(file: BinaryIO) -> Iterator[Any]:
    """The elements of one JSON list, one at a time in memory, with ``Broken`` for those that cannot be decoded.

    The text is split at commas that stand outside of strings and inner brackets, so a broken element harms no other.
    JSON that is not a list has no elements. The marks of ``[{"a": [1, 2]}, 7]`` and the depth behind each::

        [ 1    { 2    [ 3    ] 2    } 1    , 1 the first element ends    ] 0 the second element ends

    Raises:
        NotJson: the list breaks off, something comes after it, or an element is endless.
    """
    # Not ijson: it makes ``?`` of half a Unicode character, takes memory with the square of the depth, and ends the
    # file at a broken element or an integer over 64 bits.
    text = file.read(len(_BOM)).removeprefix(_BOM)
    start = at = depth = deepest = number = 0
    while True:
        while (token := (_INNER_MARK if depth > 1 else _OUTER_MARK).match(text, at)) and token[1] != b'"':
            mark, before, at = token[1], token.start(1), token.end()
            if depth == 0 and (mark != b"[" or text[:before].strip()):
                return
            depth += (mark in _OPENING) - (mark in _CLOSING)
            deepest = max(deepest, depth - 1)
            if depth == 1 and mark == b"[":
                start = at
            elif depth == 0 or mark == b",":
                element, start = text[start:before], at
                if number or depth or element.strip():
                    number += 1
                    yield _decoded(element) if deepest <= DEEPEST else Broken(f"nested deeper than {DEEPEST}")
                if depth == 0:
                    _check_end(text[at:], file, number)
                    return
                deepest = 0
        at = token.start(1) if token else len(text)
        more = file.read(max(BUFFER_BYTES, len(text) - start))
        if not more and depth == 0:
            return
        if not more or len(text) - start > _LONGEST_VALUE:
            raise NotJson(f"not JSON after {number} entries (the next one {'is endless' if more else 'breaks off'})")
        start = at if deepest > DEEPEST else start
        text, at, start = text[start:] + more, at - start, 0


def _check_end(rest: bytes, file: BinaryIO, number: int) -> None:
    while not rest.strip():
        rest = file.read(BUFFER_BYTES)
        if not rest:
            return
    raise NotJson(f"not JSON after {number} entries (text after the end of the list)")


# --- CSV -------------------------------------------------------------------------------------------------------------
def _open_csv(path: Path) -> Source:
    try:
        with _csv_text(path) as text:
            columns = tuple(name.strip() for name in next(csv.reader(text, strict=True), []))
    except (OSError, csv.Error) as error:
        raise SourceError(f"{path}: cannot be read ({first_line(error)})") from None
    if len(set(columns)) < max(1, len(columns)):
        raise SourceError(f"{path}: the first line must name columns, each once; found {', '.join(columns) or 'none'}")
    return Source(_guard(path, lambda path: _csv_rows(path, columns)), columns=columns)


def _csv_text(path: Path) -> TextIO:
    csv.field_size_limit(_LONGEST_CELL)
    return path.open(encoding="utf-8-sig", errors="surrogateescape", newline="")


def _csv_rows(path: Path, columns: tuple[str, ...]) -> Iterator[SourceRow]:
    with _csv_text(path) as text:
        rows = csv.reader(text, strict=True)
        next(rows)
        while True:
            where = f"line {rows.line_num + 1}"
            try:
                cells = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                yield SourceRow(where, None, f"not valid CSV ({error})")
                continue
            if problem := _problem_of(cells, len(columns)):
                yield SourceRow(where, None, problem)
            elif cells:
                yield SourceRow(where, {name: _cell(name, text) for name, text in zip(columns, cells, strict=True)})


def _cell(name: str, text: str) -> Any:
    """The value of a cell: its text, or the list whose JSON text it is, where a list is looked for."""
    if name in _LISTS and text.startswith("["):
        try:
            return loads(text.encode())
        except ValueError:
            return text
    return text or None


def _problem_of(cells: list[str], columns: int) -> str:
    if cells and len(cells) != columns:
        return f"{len(cells)} cells where the first line names {columns} columns"
    try:
        content = "".join(cells).encode()
    except UnicodeEncodeError:
        return "not UTF-8"
    return "holds a NUL byte" if b"\0" in content else ""


# --- Hugging Face ----------------------------------------------------------------------------------------------------
def open_dataset(
    name: str,
    split: str,
    revision: str | None = None,
    wanted: Collection[str] | None = None,
    config: str | None = None,
) -> Source:
    """The rows of one split of a Hugging Face dataset, of its only configuration unless one is named, streamed.

    Raises SourceError.

    Repositories that mix formats, such as parquet for training beside JSON for evaluation, cannot be loaded as a
    whole; of those, the files with the split's name as a word of their own name are read.
    """
    from datasets.packaged_modules.parquet.parquet import ParquetConfig  # slow to import; local files do without

    try:
        builder = _dataset_builder(name, split, revision, config)
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


def _dataset_builder(name: str, split: str, revision: str | None, config: str | None) -> Any:
    from datasets import load_dataset_builder

    try:
        return load_dataset_builder(name, config, revision=revision)
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


def _remote_parquet_rows(files: list[str], wanted: Collection[str] | None) -> Iterator[dict[str, Any] | Broken]:
    import fsspec

    for file in files:
        with fsspec.open(file, "rb") as opened:
            yield from _parquet_rows(opened, file, wanted)


def _dataset_rows(name: str, rows: Iterable[Any]) -> Iterator[SourceRow]:
    read = 0
    try:
        for row in _numbered(rows):
            yield row
            read += 1
    except Exception as error:  # network, decoding and casting errors of any library underneath
        raise SourceError(f"{name}: reading stopped behind row {read} ({first_line(error)})") from None
