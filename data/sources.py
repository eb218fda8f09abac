"""Rows of data files and Hugging Face datasets, a few at a time.

Every source yields ``SourceRow``: a dict, or the reason why this row could not be read. Anything that makes the rest
of the source unreadable is a SourceError that names it.

Memory holds a few rows, never a list or table. Readers of parquet unpack whole pages: write files of long documents
with ``write_batch_size=16``.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import ijson
import orjson

from ..system.errors import MemAgentError, reason_of

BATCH_ROWS = 16
_LONGEST_CELL = 1 << 27
_LISTS = frozenset({"answers", "answer_aliases", "paragraphs", "haystack_session_ids", "haystack_dates",
                    "answer_session_ids"})
"""Columns of a CSV whose cells may hold a list as JSON. Not ``answer`` and ``context``: these may be the text itself,
unless it is a list of paragraphs.
"""


class SourceError(MemAgentError):
    """A source that cannot be read, or not further."""


class NotJson(ValueError):
    """A list that is not JSON; says behind which element."""


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


def open_file(path: Path, wanted: Collection[str] | None = None) -> Source:
    """The rows of a .parquet, .csv, .jsonl or .json file. Raises SourceError.

    A .json file holds a list, one object per line, or an original SQuAD file, whose rows are its questions.
    ``wanted``: the columns worth reading, where the format lets others be skipped.
    """
    if not path.is_file():
        raise SourceError(f"{path}: no such file")
    match path.suffix:
        case ".parquet":
            return _open_parquet(path, wanted)
        case ".csv":
            return Source(_guard(path, _csv_rows))
        case ".jsonl":
            return Source(_guard(path, _line_rows))
        case ".json":
            return Source(_guard(path, _json_rows))
        case suffix:
            raise SourceError(f"{path}: unknown kind of file {suffix!r}; allowed: .parquet, .jsonl, .json, .csv")


def _guard(path: Path, read: Callable[[Path], Iterator[SourceRow]]) -> Iterator[SourceRow]:
    try:
        yield from read(path)
    except (OSError, ValueError, ArithmeticError, csv.Error) as error:  # arithmetic: a date out of range
        raise SourceError(f"{path}: cannot be read ({reason_of(error)})") from None


def _row(where: str, value: Any) -> SourceRow:
    if isinstance(value, dict):
        return SourceRow(where, value)
    return SourceRow(where, None, f"expected an object, found {type(value).__name__}")


def _numbered(rows: Iterable[Any]) -> Iterator[SourceRow]:
    return (_row(f"row {number}", row) for number, row in enumerate(rows, start=1))


# --- parquet ---------------------------------------------------------------------------------------------------------
def _open_parquet(path: Path, wanted: Collection[str] | None) -> Source:
    import pyarrow.parquet as pq  # here: the other sources work without it

    try:
        parquet = pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: not a readable parquet file ({reason_of(error)})") from None
    columns = [name for name in parquet.schema_arrow.names if wanted is None or name in wanted]

    def rows(path: Path) -> Iterator[SourceRow]:
        with parquet:
            batches = parquet.iter_batches(batch_size=BATCH_ROWS, columns=columns)
            yield from _numbered(row for batch in batches for row in batch.to_pylist())

    return Source(_guard(path, rows), parquet.metadata.num_rows)


# --- JSON ------------------------------------------------------------------------------------------------------------
def _line_rows(path: Path) -> Iterator[SourceRow]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield _row(f"line {number}", orjson.loads(line))
            except orjson.JSONDecodeError as error:
                yield SourceRow(f"line {number}", None, f"not valid JSON ({error})")


def _json_rows(path: Path) -> Iterator[SourceRow]:
    with path.open("rb") as file:
        if file.read(4096).lstrip().startswith(b"["):
            file.seek(0)
            yield from _numbered(json_list(file))
            return
    with suppress(orjson.JSONDecodeError):
        whole = orjson.loads(path.read_bytes())
        if isinstance(whole, dict) and isinstance(whole.get("data"), list):
            yield from (_row(f"article {number}", fields) for number, fields in squad_rows(whole["data"]))
        else:
            yield _row("row 1", whole)
        return
    yield from _line_rows(path)


def json_list(file: BinaryIO) -> Iterator[Any]:
    """The elements of one JSON list, one at a time in memory. Raises NotJson."""
    number = 0
    try:
        for element in ijson.items(file, "item", use_float=True):
            yield element
            number += 1
    except ijson.JSONError as error:
        raise NotJson(f"not JSON after {number} entries ({reason_of(error)})") from None


def read_articles(path: Path) -> list[Any]:
    """``data`` of an original SQuAD file. Raises SourceError."""
    try:
        return list(orjson.loads(path.read_bytes())["data"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{path}: not a SQuAD file ({reason_of(error)})") from None


def squad_rows(articles: Iterable[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The questions of an original SQuAD file's ``data``, each with the number of its article. Raises ValueError."""
    for number, article in enumerate(articles, start=1):
        try:
            for paragraph in article["paragraphs"]:
                for qa in paragraph["qas"]:
                    texts = [] if qa.get("is_impossible") else [answer["text"] for answer in qa["answers"]]
                    yield number, {"id": qa.get("id"), "question": qa["question"], "answers": {"text": texts},
                                   "title": article.get("title"), "context": paragraph["context"]}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"article {number} is not as in SQuAD files ({reason_of(error)})") from None


# --- CSV -------------------------------------------------------------------------------------------------------------
def _csv_rows(path: Path) -> Iterator[SourceRow]:
    csv.field_size_limit(_LONGEST_CELL)
    with _csv_text(path) as text:
        rows = csv.reader(text, strict=True)
        columns = [name.strip() for name in next(rows, [])]
        if len(set(columns)) < max(1, len(columns)):
            raise ValueError("the first line must name columns, each once")
        line = rows.line_num + 1
        for cells in rows:
            if cells and len(cells) != len(columns):
                problem = f"{len(cells)} cells where the first line names {len(columns)} columns"
                yield SourceRow(f"line {line}", None, problem)
            elif cells:
                yield SourceRow(f"line {line}", dict(map(_cell, columns, cells)))
            line = rows.line_num + 1


def _csv_text(path: Path) -> TextIO:
    return path.open(encoding="utf-8-sig", newline="")


def _cell(name: str, text: str) -> tuple[str, Any]:
    """Column and value: its text, or the list whose JSON text it is, where a list is looked for."""
    if text.startswith("[" if name in _LISTS else ("[[", "[{", '["') if name == "context" else "\0"):
        with suppress(ValueError):
            return name, orjson.loads(text)
    return name, text or None


# --- Hugging Face ----------------------------------------------------------------------------------------------------
def open_dataset(
    name: str,
    split: str,
    revision: str | None = None,
    wanted: Collection[str] | None = None,
    config: str | None = None,
) -> Source:
    """The rows of one split of a Hugging Face dataset, of its only configuration unless one is named, streamed.

    Repositories that mix formats, such as parquet for training beside JSON for evaluation, cannot be loaded as a
    whole; of those, the files with the split's name as a word of their own name are read. Raises SourceError.
    """
    try:
        dataset = _dataset(name, split, revision, config)
        if wanted is not None and dataset.column_names:
            dataset = dataset.select_columns([column for column in dataset.column_names if column in wanted])
    except Exception as error:  # the hub client raises its own, HTTP, file and value errors alike
        raise SourceError(f"{name}: split {split!r} cannot be loaded ({reason_of(error)})") from None
    return Source(_dataset_rows(name, dataset))


def _dataset(name: str, split: str, revision: str | None, config: str | None) -> Any:
    from datasets import load_dataset  # slow to import; local files do without

    try:
        return load_dataset(name, config, split=split, revision=revision, streaming=True)
    except ValueError as error:
        if "same data file format" not in str(error):
            raise
    for suffix in ("parquet", "jsonl", "json", "csv"):
        for pattern in (f"**/*[-_.]{split}[-_.]*{suffix}", f"**/{split}[-_.]*{suffix}"):
            with suppress(FileNotFoundError):
                return load_dataset(name, split=split, revision=revision, data_files={split: pattern}, streaming=True)
    raise SourceError(f"no file is named after the split {split!r}")


def _dataset_rows(name: str, rows: Iterable[Any]) -> Iterator[SourceRow]:
    read = 0
    try:
        for row in _numbered(rows):
            yield row
            read += 1
    except Exception as error:  # network, decoding and casting errors of any library underneath
        raise SourceError(f"{name}: reading stopped behind row {read} ({reason_of(error)})") from None
